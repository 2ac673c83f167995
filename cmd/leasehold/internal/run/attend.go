//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold"
)

// attendant stays with the program until it has ended: it tells the guard how far the lease
// goes, passes signals on, and stops and goes on with the program.
type attendant struct {
	l        *held
	o        Options
	term     *terminal // nil = there is none
	shared   bool      // the program is in the tool's process group
	listener *listener // nil = not shared
	guard    *keeper
	before   []int // processes that are not the guard's

	pid     int // the program's; 0 = it has not been started
	status  unix.WaitStatus
	lost    error // why the lease was lost; nil = it was not
	stopped bool  // the guard ended the program

	stop    int              // the stop in which the program stands still; 0 = it runs
	recheck <-chan time.Time // when to look whether it goes on
	hangups int              // how often it was told that no shell is left
}

func newAttendant(path string, l *held, o Options) (*attendant, error) {
	a := &attendant{l: l, o: o, term: openTerminal()}
	a.shared = a.term != nil && byDescent()
	group := 0
	var err error
	if a.shared {
		group = a.term.group
		if a.listener, err = startListener(); err != nil {
			return nil, fmt.Errorf("the listener process can't be started: %w", err)
		}
	}
	// A shell that became this tool may have left children of its own.
	session, _ := unix.Getsid(0)
	for _, p := range descendants(unix.Getpid(), []int{session, 0}, nil) {
		a.before = append(a.before, p.pid)
	}
	if err := adopt(); err != nil {
		warn("if the guard process is killed, processes of the program may go on: %v", err)
	}
	a.guard, err = startGuard(path, o, l.environment(os.Environ(), o.Key), group)
	if err != nil {
		a.listener.end()
		return nil, fmt.Errorf("the guard process can't be started: %w", err)
	}
	// Nothing is started any more that would inherit this. From the background the tool may
	// write its messages, and it stops only when the program does.
	signal.Ignore(unix.SIGTTIN, unix.SIGTTOU)
	return a, nil
}

// attend returns nil when the program has ended and nothing of it is left.
func (a *attendant) attend(signals <-chan os.Signal) error {
	// The deadline only moves on: what the guard knows of it is early, never late.
	moves := time.NewTicker(max(5*time.Millisecond, min(a.o.TTL/30, 500*time.Millisecond)))
	defer moves.Stop()
	over := a.l.Context().Done()
	if err := a.begin(signals); err != nil {
		return err
	}
	for {
		select {
		case line, ok := <-a.guard.answers:
			switch {
			case !ok:
				return a.guardKilled()
			case line.what == "exit":
				a.status = unix.WaitStatus(line.n[0])
				return nil
			case line.what == "failed" && line.n[0] != 0:
				return cannotRun(a.o.Program[0], line.n[0])
			case line.what == "failed":
				return lostBefore()
			case line.what == "started":
				a.pid = line.n[0]
				if a.term != nil && !a.shared {
					a.lend()
				}
			case line.what == "stopped":
				a.stopped = true
			case line.what == "going-on":
				a.stop = 0
			case line.what == "paused":
				a.stop = line.n[1]
				a.paused(syscall.Signal(line.n[0]))
			}
		case s := <-signals:
			a.pass(s.(syscall.Signal))
		case <-moves.C:
			if a.lost == nil {
				a.guard.until(a.l.Deadline())
			}
		case <-a.recheck:
			a.recheck = nil
			if a.stop != 0 && isStopped(a.pid) {
				a.goOn()
			}
		case <-over:
			over, a.lost = nil, context.Cause(a.l.Context())
			a.tellLost()
		}
	}
}

// begin tells the guard until when the lease is held. It waits for the guard before: on a slow machine the deadline
// of an earlier moment may be over by the time that the guard reads it, although the lease was renewed meanwhile.
func (a *attendant) begin(signals <-chan os.Signal) error {
	var early []syscall.Signal
	for ready := a.guard.answers; ready != nil || len(signals) > 0; { // no other goroutine receives
		select {
		case s := <-signals:
			if slices.Contains(ending, s.(syscall.Signal)) {
				return diedOf(s)
			}
			early = append(early, s.(syscall.Signal))
		case _, ok := <-ready:
			if !ok {
				return a.guardKilled()
			}
			ready = nil
		case <-a.l.Context().Done():
			return lostBefore()
		}
	}
	// From here on the program may run before the guard's answer says so.
	a.guard.until(a.l.Deadline())
	for _, sig := range early {
		a.pass(sig)
	}
	return nil
}

// guardKilled kills the program: without the guard nothing would end it if this process is killed.
func (a *attendant) guardKilled() error {
	killOrphans(a.before, a.pid)
	return failed(CodeTool, errors.New("the guard process was killed, without which the program has no protection; the program was killed, too"))
}

func lostBefore() error {
	return failed(CodeLost, fmt.Errorf("%w before the program could be started", leasehold.ErrLost))
}

// tellLost ends the program: the lease was revoked or deleted in Redis, and another may hold
// it already. The guard gives the program the grace, and kills it after that.
func (a *attendant) tellLost() {
	grace := a.o.Grace
	switch a.o.Lost {
	case LostWarn:
		warn("the program goes on without the lease, as --lost warn says: %v", a.lost)
		return
	case LostKill:
		grace = 0
	}
	a.guard.tell("lost %d", int64(clock()+grace))
}

// pass gives a signal to the program, unless it has gone to the whole group. The guard starts the program before
// it takes the next line, and only its answer is still to come if the pid is not known. A signal to the group may
// then have come before the program was in it. So the program gets it from the guard: twice is better than never.
func (a *attendant) pass(sig syscall.Signal) {
	if a.pid == 0 {
		a.guard.tell("signal %d", int(sig))
		return
	}
	at := time.Now()
	tell := func() {
		if a.listener.toToolAlone(sig, at) {
			a.guard.tell("signal %d", int(sig))
		}
	}
	if a.shared {
		go tell()
		return
	}
	tell()
}

// paused stops the tool as the program was stopped, so that the shell has the terminal. Then no renewal runs, and
// the guard ends the program at its deadline. SIGSTOP is meant for the program alone.
func (a *attendant) paused(by syscall.Signal) {
	a.listener.took(by)
	if a.term == nil || by == unix.SIGSTOP {
		return
	}
	if !isStopped(a.pid) { // the shell has let it go on meanwhile; this process would be stopped for ever
		return
	}
	if a.shared && isOrphaned(a.term.group) {
		a.orphaned(by)
		return
	}
	// The program may go on at this moment, before the tool has stopped: the guard then lets the tool go on.
	a.guard.tell("pausing")
	if !a.shared {
		a.term.give(a.term.group)
	}
	from := time.Now()
	stopSelf()
	a.listener.stoodStill(from)
	a.guard.tell("resumed")
	if !a.shared {
		a.lend()
	}
	// A shell lets the whole group go on. Where the program still stands at that time,
	// the signal came for the tool alone.
	a.recheck = time.After(hearing)
}

func (a *attendant) goOn() {
	if a.shared && isOrphaned(a.term.group) {
		a.orphaned(unix.SIGTTIN)
		return
	}
	a.guard.tell("go-on %d", a.stop)
}

// orphaned does as the kernel does in a group that no shell controls, where it finds that out
// itself: there Ctrl-Z does nothing, and a stopped program learns of the hang-up. One that
// still asks for the terminal gets nothing of it, and would ask for ever: it is ended.
func (a *attendant) orphaned(by syscall.Signal) {
	if by != unix.SIGTSTP {
		a.hangups++
		switch a.hangups {
		case 1:
			a.guard.tell("signal %d", int(unix.SIGHUP))
		case 2:
			warn("the program asks for the terminal, and no shell is left to give it: it is ended")
			a.guard.tell("signal %d", int(unix.SIGTERM))
		default:
			a.guard.tell("signal %d", int(unix.SIGKILL))
		}
	}
	a.guard.tell("go-on %d", a.stop)
}

func (a *attendant) lend() {
	if a.term.foreground() == a.term.group {
		a.term.give(a.pid)
		a.guard.tell("go-on %d", a.stop)
	}
}

// end ends the guard, and with it the program where it still runs.
func (a *attendant) end() {
	a.guard.end()
	a.listener.end()
	a.term.restore(a.status.Signaled())
}
