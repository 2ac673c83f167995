//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold"
)

// closeBound is how long the end waits for Redis to confirm that all was given
// back.
const closeBound = 5 * time.Second

// passed are the signals that are given on to the program.
var passed = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH,
}

// Run takes the lease, runs the program under it, and gives the lease back. It
// returns the exit code; an *Error says what went wrong.
func Run(rdb redis.UniversalClient, o Options) (exit int, err error) {
	path, err := lookUp(o.Program[0])
	if err != nil {
		return 0, err
	}
	h, err := open(rdb, o)
	if err != nil {
		return 0, failed(CodeUsage, err)
	}
	before, err := predecessorsOf(rdb, o)
	if err != nil {
		return 0, failed(CodeUsage, err)
	}
	// However it ends, nothing of this process is left in Redis: neither a place
	// in a queue nor a lease.
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeBound)
		defer cancel()
		_ = h.close(ctx)
	}()
	guard, started, err := startGuard(o)
	if err != nil {
		return 0, failed(CodeTool, fmt.Errorf("the guard process: %w", err))
	}
	defer func() {
		if guard != nil {
			guard.done()
		}
	}()

	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passed...)
	defer signal.Stop(signals)
	l, sig, err := await(h, before, o, signals)
	if err != nil {
		return 0, err
	}
	if sig != 0 {
		_ = started.Close()
		return 0, &Error{Signal: int(sig), Err: fmt.Errorf("stopped by %v", sig)}
	}
	guard.until(l.Deadline())
	term := openTerminal()
	p, err := start(path, o.Program, l.environment(os.Environ(), o.Key), started, term)
	if err != nil {
		_ = before.giveBack(l)
		return 0, failed(CodeTool, err)
	}
	guard.tell("group", int64(p.pid))
	status, lost := p.attend(l, guard, o, signals)
	sweep(p.pid, o.Grace)
	term.takeBack(status.Signaled())
	stopped := guard.done()
	guard = nil
	return finish(l, before, status, lost, stopped)
}

// await waits for the lease, or for a signal that ends the tool.
func await(h *handle, p predecessors, o Options, signals <-chan os.Signal) (*held, syscall.Signal, error) {
	type outcome struct {
		l   *held
		err error
	}
	stop, done := make(chan struct{}), make(chan outcome, 1)
	go func() {
		l, err := take(h, p, o, stop)
		done <- outcome{l, err}
	}()
	var sig syscall.Signal
	for {
		select {
		case got := <-done:
			if sig != 0 && got.l != nil { // it was had in that moment
				_ = p.giveBack(got.l)
			}
			if sig != 0 {
				return nil, sig, nil
			}
			return got.l, 0, got.err
		case s := <-signals:
			switch s {
			case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
				if sig == 0 {
					sig = s.(syscall.Signal)
					close(stop)
				}
			}
		}
	}
}

// attend stays with the program until it has ended: it tells the guard how far
// the lease goes, and passes signals on. It returns why the lease was lost, nil
// where it was not.
func (p *program) attend(l *held, guard *keeper, o Options, signals <-chan os.Signal) (status unix.WaitStatus, lost error) {
	// The deadline only moves on: what the guard knows of it is early, never late.
	moves := time.NewTicker(max(5*time.Millisecond, min(o.TTL/30, 500*time.Millisecond)))
	defer moves.Stop()
	over := l.Context().Done()
	for {
		select {
		case status = <-p.ended:
			return status, lost
		case s := <-signals:
			p.pass(s)
		case <-moves.C:
			if lost == nil {
				guard.until(l.Deadline())
			}
		case <-over:
			// Revoked, or deleted in Redis: another may hold it already. The guard
			// gives the program the grace, and kills it after that.
			over, lost = nil, context.Cause(l.Context())
			grace := o.Grace
			if o.Kill {
				grace = 0
			}
			guard.tell("lost", int64(clock()+grace))
		case <-guard.gone:
			// Without it nothing stops the program if this process is killed.
			_ = unix.Kill(-p.pid, unix.SIGKILL)
			return <-p.ended, errNoGuard
		}
	}
}

var errNoGuard = errors.New("the guard process has ended; the program was killed")

// finish gives the lease back, and says which code it all comes to.
func finish(l *held, p predecessors, status unix.WaitStatus, lost error, stopped bool) (int, error) {
	err := p.giveBack(l)
	switch {
	case lost == errNoGuard:
		return 0, failed(CodeTool, lost)
	case errors.Is(lost, leasehold.ErrLost):
		return 0, failed(CodeLost, lost)
	case errors.Is(err, leasehold.ErrLost):
		return 0, failed(CodeLost, err)
	case stopped:
		return 0, failed(CodeLost, fmt.Errorf("%w: the program was stopped before the lease ended", leasehold.ErrLost))
	case err != nil:
		fmt.Fprintf(os.Stderr, "leasehold: %v\n", err)
	}
	return code(status), nil
}
