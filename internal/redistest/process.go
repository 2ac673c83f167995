package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is a child of the test process that doesn't outlive it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process ended and was reaped
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = dieWithParent()
	var err error
	fork(func() { err = cmd.Start() })
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go p.reap()
	return p, nil
}

func (p *process) reap() {
	defer close(p.done)
	_ = p.cmd.Wait() // how it ended stands in ProcessState
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill returns when the process is gone, so that its port and files are free. SIGKILL also ends a stopped process.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// pause returns when the process has stopped: the signal alone is delivered
// some time later, and a test would race with what it still does.
func (p *process) pause() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(5 * time.Second); !isStopped(p.pid()); time.Sleep(time.Millisecond) {
		if p.ended() {
			return os.ErrProcessDone
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d didn't stop within 5s", p.pid())
		}
	}
	return nil
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// forks takes calls to an OS thread that never ends. On Linux a child's parent is, for the signal at the
// parent's death, the thread that forked it: started from any other goroutine the child would be killed as
// soon as some goroutine that had locked that thread ended.
var forks = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go forkLoop(calls)
	return calls
})

func fork(call func()) {
	done := make(chan struct{})
	forks() <- func() { defer close(done); call() }
	<-done
}

func forkLoop(calls <-chan func()) {
	runtime.LockOSThread()
	for call := range calls {
		call()
	}
}
