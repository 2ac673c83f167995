package singleflight

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/leasehold-go/leasehold/internal/envelope"
)

var (
	// ErrNotFound is the error that a loader returns if the value does not exist. It is shared
	// like a value, and is remembered for Config.NotFoundTTL.
	ErrNotFound = errors.New("not found")

	// ErrLoadTimeout says that a load took longer than Config.LoadTimeout. It never matches
	// context.DeadlineExceeded, because a caller would take that for a deadline of its own.
	ErrLoadTimeout = errors.New("the load took too long")

	// ErrLoaderPanicked says that the loader of another call panicked or called
	// [runtime.Goexit].
	ErrLoaderPanicked = errors.New("the loader panicked")

	// ErrNotStored says that Put has only invalidated the key. Either the value is larger than
	// Config.MaxValueBytes, or Config.TTLFor says not to store it.
	ErrNotStored = errors.New("the value was not stored; what was cached is dropped")

	// ErrTooLarge says that a value is larger than Config.MaxValueBytes. Put returns it
	// together with ErrNotStored. If a loader returns such a value, it is logged.
	ErrTooLarge = errors.New("the value is larger than MaxValueBytes")
)

// ErrLoadCycle says that a loader asked for a key that its own load would have to wait for.
// This is its own key, or a key whose load, in this process, already waits for it. Such a call
// fails at once, after a look-up if the key is not its own.
//
// The cycle is recognised by the loader's ctx, so the loader must pass it on. It is recognised
// through every handle on the same cached values that has the same client. A cycle through
// other processes is not detected. Its loads end when the callers that wanted them have left.
var ErrLoadCycle = errors.New("the load would wait for itself")

// RemoteError is a loader's failure in another process, or a remembered one. Its text is that
// of the loader's error, up to 4 KiB. Of the loader's error chain, only [ErrLoadTimeout] and the
// sentinels of Config.Errors are kept. It matches [ErrLoaderPanicked] if that loader itself panicked.
type RemoteError struct {
	Text      string
	kind      envelope.Kind
	sentinels []error // those of Config.Errors that the loader's error matched
}

// Error returns the text of the loader's error.
func (e *RemoteError) Error() string { return e.Text }

// Is reports whether target is the sentinel for this kind of failure, or one of Config.Errors
// that the loader's error matched.
func (e *RemoteError) Is(target error) bool {
	return slices.Contains(e.sentinels, target) ||
		e.kind == envelope.Timeout && target == ErrLoadTimeout ||
		(e.kind == envelope.Panic || e.kind == envelope.Goexit) && target == ErrLoaderPanicked
}

// KeysError is the error of [Group.DoMany], and of [Group.Invalidate] for several keys. It has
// one error for each key that failed. errors.Is and errors.As look into all of them.
type KeysError struct {
	ByKey map[string]error
}

const maxKeysInText = 10

// Error returns the texts of the first ten errors, in the order of their keys, a line each, and
// the number of the others.
func (e *KeysError) Error() string {
	all := e.Unwrap()
	text := errors.Join(all[:min(len(all), maxKeysInText)]...)
	switch {
	case text == nil:
		return "no key failed"
	case len(all) > maxKeysInText:
		return fmt.Sprintf("%v\nand %d more keys", text, len(all)-maxKeysInText)
	}
	return text.Error()
}

// Unwrap returns the errors in the order of their keys.
func (e *KeysError) Unwrap() []error {
	all := make([]error, 0, len(e.ByKey))
	for _, key := range slices.Sorted(maps.Keys(e.ByKey)) {
		all = append(all, e.ByKey[key])
	}
	return all
}

// failedKeys returns the error for keys that failed; nil if there are none.
func failedKeys(byKey map[string]error) error {
	if len(byKey) == 0 {
		return nil
	}
	return &KeysError{byKey}
}

// maxText is the largest text of an error that is passed to other processes, in bytes.
const maxText = 4096

// separator separates, in an envelope, the text of a failure and the texts of the sentinels
// that it matches.
const separator = "\x00"
