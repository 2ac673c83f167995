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

	// ErrNotStored is what Put returns where it has only invalidated: the value is
	// larger than Config.MaxValueBytes, or Config.TTLFor says not to store it.
	ErrNotStored = errors.New("the value was not stored; what was cached is dropped")

	// ErrTooLarge says that a value is larger than Config.MaxValueBytes. Put returns
	// it, together with ErrNotStored; of a load it is logged.
	ErrTooLarge = errors.New("the value is larger than MaxValueBytes")
)

// RemoteError is a loader's failure in another process, or a remembered one. Its
// text is the loader's, up to 4 KiB of it. Of the loader's error chain only
// [ErrLoadTimeout], [ErrLoaderPanicked] and the sentinels of Config.Errors cross.
type RemoteError struct {
	Text      string
	kind      envelope.Kind
	sentinels []error // of Config.Errors, that the loader's error matched
}

// Error is the text of the loader's error.
func (e *RemoteError) Error() string { return e.Text }

// Is reports whether the failure was of that kind, or matched that sentinel.
func (e *RemoteError) Is(target error) bool {
	for _, s := range e.sentinels {
		if s == target {
			return true
		}
	}
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

// separator stands between the text of a failure and the texts of the sentinels that
// it matches, in an envelope.
const separator = "\x00"
