// Package run runs a program under a lock or a permit: it is started when the
// lease is held, and stopped before anybody else can hold it.
package run

import "fmt"

// Exit codes that are not the program's own. 128 + n says that signal n ended it.
const (
	CodeUsage       = 64  // bad arguments
	CodeUnreachable = 69  // Redis could not be asked
	CodeOutput      = 74  // standard output could not be written
	CodeConflict    = 75  // the lease was not had in time; --conflict-exit-code changes it
	CodeRefused     = 77  // the user lacks a right; leasehold run says CodeUnreachable of that
	CodeLost        = 124 // the lease was lost, and the program stopped for that; or the waiting place was revoked
	CodeTool        = 125 // the tool itself failed
	CodeCannotRun   = 126 // the program was found and can't be run
	CodeNotFound    = 127 // there is no such program
)

// Error is a failure with its exit code. With Signal, the tool dies of it.
type Error struct {
	Code   int
	Signal int
	Err    error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

func failed(code int, err error) error { return &Error{Code: code, Err: err} }
