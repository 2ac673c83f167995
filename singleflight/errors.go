package singleflight

import (
	"errors"

	"github.com/leasehold-go/leasehold/internal/envelope"
)

var (
	// ErrNotFound is what a loader returns for "there is no such thing". It is
	// shared like a value, and remembered for Config.NotFoundTTL.
	ErrNotFound = errors.New("not found")

	// ErrLoadTimeout says that a load took longer than Config.LoadTimeout. It
	// never matches context.DeadlineExceeded, which would read as the caller's
	// own.
	ErrLoadTimeout = errors.New("the load took too long")

	// ErrLoaderPanicked says that the loader panicked, or called
	// [runtime.Goexit], in another call than this one.
	ErrLoaderPanicked = errors.New("the loader panicked")

	// ErrTooLarge explains, in the log, why a value was not cached.
	ErrTooLarge = errors.New("the value is larger than MaxValueBytes")
)

// RemoteError is a loader's failure in another process, or a remembered one. Its
// text is the loader's, up to 4 KiB of it. Of the loader's error chain only
// [ErrLoadTimeout] and [ErrLoaderPanicked] cross.
type RemoteError struct {
	Text string
	kind envelope.Kind
}

// Error is the text of the loader's error.
func (e *RemoteError) Error() string { return e.Text }

// Is reports whether the failure was of that kind.
func (e *RemoteError) Is(target error) bool {
	switch e.kind {
	case envelope.Timeout:
		return target == ErrLoadTimeout
	case envelope.Panic, envelope.Goexit:
		return target == ErrLoaderPanicked
	}
	return false
}

// maxText bounds an error's text that crosses, in bytes.
const maxText = 4096
