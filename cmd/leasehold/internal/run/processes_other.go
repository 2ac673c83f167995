//go:build unix && !linux

package run

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Systems that do not show which process descends from which: the program has a process
// group of its own, and what stays in that group is what can be ended.

const clockID = unix.CLOCK_MONOTONIC

type process struct {
	pid, session int
	name         string
}

func (p process) send(sig syscall.Signal) error { return unix.Kill(p.pid, sig) }

// descendants is the group of the program, which the sessions name last.
func descendants(_ int, sessions, _ []int) []process {
	group := sessions[len(sessions)-1]
	if group == 0 || unix.Kill(-group, 0) == unix.ESRCH {
		return nil
	}
	return []process{{pid: -group, name: "the program's group"}}
}

func adopt() error              { return nil }
func byDescent() bool           { return false }
func isStopped(int) bool        { return true }
func isOrphaned(int) bool       { return false }
func honoursSetuid(string) bool { return true }

func initiallyIgnored() map[syscall.Signal]bool {
	ignored := map[syscall.Signal]bool{}
	for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT} {
		ignored[sig] = signal.Ignored(sig)
	}
	return ignored
}

// stopSelf stops this process until the shell, or the guard, lets it go on.
func stopSelf() {
	// The signal may be delivered to another thread: this one goes on for a moment,
	// and must not take that for the end of the stop.
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, unix.SIGCONT)
	defer signal.Stop(goesOn)
	_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
	<-goesOn
}
