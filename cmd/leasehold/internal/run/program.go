//go:build unix

package run

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// program is the process that runs under the lease, the leader of a process
// group of its own.
type program struct {
	pid   int
	term  *terminal
	ended chan unix.WaitStatus
}

// start starts the stub, which becomes the program by the guard's word.
func start(path string, argv, env []string, started *os.File, term *terminal) (*program, error) {
	defer started.Close()
	self, err := self()
	if err != nil {
		return nil, err
	}
	sys := &syscall.SysProcAttr{Setpgid: true}
	if term != nil {
		sys.Foreground, sys.Ctty = true, term.fd()
	}
	p, err := os.StartProcess(self, append([]string{"leasehold", stubCommand, path}, argv...), &os.ProcAttr{
		Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, started}, Sys: sys,
	})
	if err != nil {
		return nil, err
	}
	q := &program{pid: p.Pid, term: term, ended: make(chan unix.WaitStatus, 1)}
	go q.wait()
	return q, nil
}

// wait reaps the program. Where it is stopped from the terminal (Ctrl-Z), the
// tool stops, too, so that the shell has the terminal; then no renewal runs, and
// the guard ends the program at its deadline.
func (p *program) wait() {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(p.pid, &status, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			status = unix.WaitStatus(CodeTool << 8)
		case status.Stopped():
			if p.term != nil && status.StopSignal() != unix.SIGSTOP {
				p.term.pause(p.pid)
			}
			continue
		}
		p.ended <- status
		return
	}
}

// pass gives a signal to the program alone.
func (p *program) pass(sig os.Signal) {
	if n, ok := sig.(syscall.Signal); ok {
		_ = unix.Kill(p.pid, n)
	}
}

// sweep ends what the program left in its process group, which would go on
// without the lease: SIGTERM, then after the grace SIGKILL.
func sweep(pgid int, grace time.Duration) {
	reap(pgid)
	if errors.Is(unix.Kill(-pgid, unix.SIGTERM), unix.ESRCH) {
		return
	}
	_ = unix.Kill(-pgid, unix.SIGCONT)
	gone := func(within time.Duration) bool {
		for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			reap(pgid)
			if errors.Is(unix.Kill(-pgid, 0), unix.ESRCH) {
				return true
			}
		}
		return false
	}
	if gone(grace) {
		return
	}
	fmt.Fprintln(os.Stderr, "leasehold: the program left processes behind; they are killed")
	_ = unix.Kill(-pgid, unix.SIGKILL)
	gone(time.Second)
}

// reap reaps those of the group that have ended and whose parents had ended before
// them. In a container the tool is the first process, and theirs: until they are
// reaped the group looks alive. The program itself was reaped before.
func reap(pgid int) {
	for {
		pid, err := unix.Wait4(-pgid, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// code is the program's exit code, or 128 + the signal that ended it.
func code(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
