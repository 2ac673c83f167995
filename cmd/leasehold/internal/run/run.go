//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold"
)

// closeBound is how long the end waits for Redis to confirm that all was given back.
const closeBound = 5 * time.Second

// closeSoon is that of a tool that is to end soon.
const closeSoon = 500 * time.Millisecond

// Run takes the lease, runs the program under it, and gives the lease back. It
// returns the exit code; an *Error says what went wrong.
func Run(dial func(context.Context) ([]redis.UniversalClient, error), o Options) (exit int, err error) {
	path, err := lookUp(o.Program[0])
	if err != nil {
		return 0, err
	}
	if owner, ok := runsAsAnother(path); ok && o.Lost != LostWarn {
		return 0, failed(CodeCannotRun, fmt.Errorf("%s: can't be run: it runs as user %d, so that it could not be stopped if the lease is lost; "+
			"run the tool as that user (sudo leasehold run …), or say with --lost warn that the program need not be stopped", path, owner))
	}
	// A reader of standard error that has gone must not end the tool before the lease is given back.
	catch(neither, unix.SIGPIPE)
	signals := make(chan os.Signal, 16)
	catch(signals, ending...)
	defer signal.Stop(signals)

	f := &family{}
	// However it ends, nothing of this process is left in Redis: neither a place in a queue nor a lease.
	defer func() { f.close(o) }()
	l, err := await(func(ctx context.Context) (*family, error) { return openFamily(ctx, dial, o) }, f, o, signals)
	if errors.Is(err, errComplete) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	a, err := newAttendant(path, l, o)
	if err != nil {
		_ = f.giveBack(l)
		return 0, failed(CodeTool, err)
	}
	catch(signals, passed...)
	failure := a.attend(signals)
	a.end()
	l.succeeded = failure == nil && a.lost == nil && !a.stopped && code(a.status) == 0
	return finish(f.giveBack(l), a, failure)
}

// finish says which code it all comes to. released is the outcome of giving the lease back.
func finish(released error, a *attendant, failure error) (int, error) {
	switch {
	case failure != nil:
		return 0, failure
	case errors.Is(a.lost, leasehold.ErrLost):
		return 0, failed(CodeLost, a.lost)
	case errors.Is(released, leasehold.ErrLost):
		return 0, failed(CodeLost, released)
	case a.stopped:
		return 0, failed(CodeLost, fmt.Errorf("%w: the program was stopped before the lease ended", leasehold.ErrLost))
	case errors.As(released, new(*Error)):
		return 0, released
	case released != nil:
		warn("the lease may stay taken until it expires: %v", released)
	}
	return code(a.status), nil
}

func code(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// diedOf is the outcome of a tool that a signal ended before the program ran.
func diedOf(sig os.Signal) error {
	n, _ := sig.(syscall.Signal)
	return &Error{Code: 128 + int(n), Signal: int(n), Err: fmt.Errorf("signal %d (%v) came before the program was started; it did not run", int(n), sig)}
}

// lookUp finds the program before anything is taken: a misspelt name must not cost the fleet a turn.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrDot):
		return path, nil // asked for by the user's own PATH
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", failed(CodeNotFound, fmt.Errorf("%s: not found", name))
	default:
		return "", failed(CodeCannotRun, fmt.Errorf("%s: can't be run: %w", name, cause(err)))
	}
}

// cause is what an error of the system says, without the call and the path.
func cause(err error) error {
	for next := err; next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

// runsAsAnother reports whether the file is a program that runs as another user, so that this one may not end it.
func runsAsAnother(path string) (owner int, ok bool) {
	var s unix.Stat_t
	err := unix.Stat(path, &s)
	return int(s.Uid), err == nil && unix.Geteuid() != 0 && s.Mode&unix.S_ISUID != 0 && int(s.Uid) != unix.Getuid() && honoursSetuid(path)
}
