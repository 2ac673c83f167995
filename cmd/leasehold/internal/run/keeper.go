//go:build unix

package run

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type keeper struct {
	process *os.Process
	lines   *os.File
	answers chan answer // closed when the guard has ended
	told    time.Duration
}

type answer struct {
	what string
	n    [2]int
}

// startGuard starts the guard, which starts the program once it is told a deadline.
func startGuard(path string, o Options, env []string, group int) (*keeper, error) {
	in, lines, words, out, err := pipes()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	defer out.Close()
	t := task{Grace: o.Grace, Lost: o.Lost, Group: group, Lines: int(in.Fd()), Answer: int(out.Fd())}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	// The guard inherits its ends of the pipes under their own numbers: any other number
	// may be that of a file which the caller passes on to the program.
	for _, fd := range []int{t.Lines, t.Answer} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return nil, err
		}
	}
	p, err := startSelf(append([]string{guardCommand, string(text), path}, o.Program...), &os.ProcAttr{
		Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return nil, err
	}
	k := &keeper{process: p, lines: lines, answers: make(chan answer)}
	go func() {
		defer words.Close()
		defer close(k.answers)
		for in := bufio.NewScanner(words); in.Scan(); {
			a := answer{}
			_, _ = fmt.Sscan(in.Text(), &a.what, &a.n[0], &a.n[1]) // few have two numbers
			k.answers <- a
		}
		_, _ = p.Wait()
	}()
	return k, nil
}

func (k *keeper) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(k.lines, format+"\n", args...)
}

// until tells the guard a lease's deadline, where it has moved.
func (k *keeper) until(deadline time.Time) {
	at := clock() + time.Until(deadline)
	if at-k.told < time.Millisecond && k.told-at < time.Millisecond {
		return
	}
	k.told = at
	k.tell("deadline %d", int64(at))
}

// end ends the guard, and with it the program where it still runs. It may be called again.
func (k *keeper) end() {
	if k.lines.Close() != nil {
		return
	}
	stuck := time.AfterFunc(2*time.Second, func() { _ = k.process.Kill() }) // somebody stopped it
	defer stuck.Stop()
	for range k.answers { //nolint:revive // until it has ended
	}
}

// cannotRun is the error of a program that the guard could not start.
func cannotRun(path string, number int) error {
	err := error(syscall.Errno(number))
	if errors.Is(err, os.ErrNotExist) { // of its interpreter; the program itself was found
		err = fmt.Errorf("%w (its interpreter, perhaps)", err)
	}
	return failed(CodeCannotRun, fmt.Errorf("%s: can't be run: %w", path, err))
}

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
// ended it. Where the signal is ignored it returns, and also of SIGQUIT: the runtime would answer that with all
// stacks and an exit code of its own.
func DieOf(n int) {
	if n == int(unix.SIGQUIT) {
		return
	}
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
