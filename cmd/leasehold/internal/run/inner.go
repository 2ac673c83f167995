//go:build unix

package run

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Possible says whether programs can be run: process groups and the guard are Unix's.
const Possible = true

// The names under which the tool starts itself.
const (
	guardCommand    = "run-guard"
	listenerCommand = "run-listener"
)

// Inner runs one of the processes that the tool starts of itself, and reports whether args name one.
func Inner(args []string) (code int, ok bool) {
	if len(args) < 1 {
		return 0, false
	}
	switch args[0] {
	case guardCommand:
		return Guard(args[1:]), true
	case listenerCommand:
		return Listener(), true
	}
	return 0, false
}

// DieOf ends the process by a signal that it had caught, so that the shell sees what
// ended it. Where the signal is ignored it returns.
func DieOf(n int) {
	signal.Reset(syscall.Signal(n))
	_ = syscall.Kill(syscall.Getpid(), syscall.Signal(n))
	time.Sleep(time.Second)
}

// startSelf starts the running program's file, also where another version was installed in its place since.
func startSelf(args []string, attr *os.ProcAttr) (*os.Process, error) {
	self := "/proc/self/exe"
	if _, err := os.Readlink(self); err != nil {
		if self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	return os.StartProcess(self, append([]string{"leasehold"}, args...), attr)
}

// pipes are one to a process, from to in, and one back, from out to words.
func pipes() (in, to, words, out *os.File, err error) {
	if in, to, err = os.Pipe(); err == nil {
		words, out, err = os.Pipe()
	}
	return in, to, words, out, err
}

// clock is read alike by all processes of the machine; where clockID can, it goes on while the machine sleeps.
func clock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clockID, &t); err != nil {
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	}
	return time.Duration(t.Nano())
}
