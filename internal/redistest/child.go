package redistest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// envChild names the function that a re-executed test binary runs.
const envChild = "LEASEHOLD_TEST_CHILD"

// children are written by init functions only, and read after.
var children = map[string]func(args []string) int{}

// RegisterChild gives a name to a function that [StartChild] runs in a process of its own; what it returns is
// the process's exit code. To be called from an init function, in a package whose TestMain calls [Main].
func RegisterChild(name string, fn func(args []string) int) {
	if _, twice := children[name]; twice {
		panic("redistest: child registered twice: " + name)
	}
	children[name] = fn
}

func runChild() {
	name, ok := os.LookupEnv(envChild)
	if !ok {
		return
	}
	// What the child starts by itself is no child of this kind.
	_ = os.Unsetenv(envChild)
	fn, ok := children[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "no child function is registered as %q\n", name)
		os.Exit(2)
	}
	os.Exit(fn(os.Args[1:]))
}

// Child is a process that runs a registered function: a client that can be
// killed or stopped at any moment. Its standard error is the test's.
type Child struct {
	tb     testing.TB
	proc   *process
	in     *os.File
	out    *os.File
	reader *bufio.Reader
}

// StartChild runs the function that was registered under name in a new process
// of the test's own binary. The process ends with the test at the latest.
func StartChild(tb testing.TB, name string, args ...string) *Child {
	tb.Helper()
	CheckNow(tb, children[name] != nil, "no child function is registered as %q", name)
	self, err := os.Executable()
	WantErr(tb, err)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), envChild+"="+name)
	cmd.Stderr = os.Stderr
	stdin, in, err := os.Pipe()
	WantErr(tb, err)
	defer stdin.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		_ = in.Close()
		tb.Fatal(err)
	}
	defer stdout.Close()
	cmd.Stdin, cmd.Stdout = stdin, stdout
	proc, err := startProcess(cmd)
	if err != nil {
		_, _ = in.Close(), out.Close()
		tb.Fatalf("start child %s: %v", name, err)
	}
	c := &Child{tb: tb, proc: proc, in: in, out: out, reader: bufio.NewReader(out)}
	tb.Cleanup(func() {
		proc.kill()
		_, _ = in.Close(), out.Close()
	})
	return c
}

// childTimeout bounds the wait for a child's word. It is for machines that are busy with other tests.
const childTimeout = 30 * time.Second

// Line reads the next line that the child prints, without its end. It returns io.EOF when the child has
// closed its output or ended, and os.ErrDeadlineExceeded where nothing comes within 30 s. A child whose lines
// nobody reads blocks after some 64 KiB.
func (c *Child) Line() (string, error) { return c.LineWithin(childTimeout) }

// LineWithin is Line with a bound of its own. A line that is late may be cut in two by it.
func (c *Child) LineWithin(d time.Duration) (string, error) {
	if err := c.out.SetReadDeadline(time.Now().Add(d)); err != nil {
		return "", err
	}
	line, err := c.reader.ReadString('\n')
	if line != "" && err == io.EOF {
		err = nil
	}
	return strings.TrimSuffix(line, "\n"), err
}

// Expect reads lines up to one that begins with prefix and returns the rest of
// that line, trimmed. It fails the test where the child ends before.
func (c *Child) Expect(prefix string) string {
	c.tb.Helper()
	for {
		line, err := c.Line()
		Require(c.tb, err, nil, "waiting for the child to print %q: %v", prefix)
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
}

func (c *Child) Send(line string) {
	c.tb.Helper()
	Expect(c.tb, ErrorOf(io.WriteString(c.in, line+"\n")), nil, "send %q to the child: %v", line)
}

// CloseInput lets the child read the end of its standard input.
func (c *Child) CloseInput() { _ = c.in.Close() }

// Kill ends the child as a crash would (SIGKILL) and returns when it is gone.
func (c *Child) Kill() { c.proc.kill() }

// Pause stops the child (SIGSTOP) and returns when it has stopped.
func (c *Child) Pause() {
	c.tb.Helper()
	Expect(c.tb, c.proc.pause(), nil, "pause child: %v")
}

func (c *Child) Resume() {
	c.tb.Helper()
	Expect(c.tb, c.proc.resume(), nil, "resume child: %v")
}

// Wait returns the child's exit code when it has ended, -1 where a signal
// ended it. It fails the test if the child runs for another minute.
func (c *Child) Wait() int {
	c.tb.Helper()
	select {
	case <-c.proc.done:
	case <-time.After(time.Minute):
		c.tb.Fatal("the child doesn't end")
	}
	return c.proc.cmd.ProcessState.ExitCode()
}

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
