package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fleet is the child processes of a run, and all that they have reported.
type Fleet struct {
	srv *Server
	run string

	mu        sync.Mutex
	events    []Event
	grown     chan struct{} // closed when an event is added, and replaced
	processes []*Process
}

// Process is a child process as its parent sees it.
type Process struct {
	Name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when it has ended and its reports are read

	mu     sync.Mutex
	mayEnd bool // its end is no failure: it was killed, or asked to stop
}

// Spec says what a process is started as.
type Spec struct {
	Name, Role string
	Args       []string
	Env        []string // more of it, "KEY=value"
	Link       *Link    // its way to Redis; nil is the direct one
}

// NewFleet has no process yet. All of them will use srv and know the run's name.
func NewFleet(srv *Server, run string) *Fleet {
	return &Fleet{srv: srv, run: run, grown: make(chan struct{})}
}

// Start starts this program again, as a child with a role.
func (f *Fleet) Start(spec Spec) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	link := ""
	if spec.Link != nil {
		link = spec.Link.Addr()
	}
	cmd.Env = slices.Concat(os.Environ(), spec.Env, []string{
		envRole + "=" + spec.Role, envName + "=" + spec.Name, envRun + "=" + f.run,
		envArgs + "=" + strings.Join(spec.Args, "\n"), envRedis + "=" + f.srv.URL, envLink + "=" + link,
	})
	OwnGroup(cmd)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	p := &Process{Name: spec.Name, cmd: cmd, stdin: stdin, done: make(chan struct{})}
	f.mu.Lock()
	f.processes = append(f.processes, p)
	f.mu.Unlock()
	go func() {
		f.read(p, stdout)
		err := cmd.Wait()
		ended := Event{At: time.Now(), From: p.Name, Kind: Ended}
		if err != nil && !p.endIsExpected() {
			ended.Text = strings.TrimSpace(fmt.Sprintf("%v\n%s", err, stderr.String()))
		}
		f.add(ended)
		close(p.done)
	}()
	return p, nil
}

func (f *Fleet) read(p *Process, stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) == nil { // else half a line: it was killed while it wrote
			e.From = p.Name
			f.add(e)
		}
	}
}

func (f *Fleet) add(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.Index = len(f.events)
	f.events = append(f.events, e)
	close(f.grown)
	f.grown = make(chan struct{})
}

// Events is all that was reported until now, in the order of arrival: each
// process's own order is kept.
func (f *Fleet) Events() []Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// awaitLimit is for machines that are busy with other work.
const awaitLimit = 25 * time.Second

// Await returns the first event of all that match accepts. It fails where a
// process failed, and where the event does not come within 25 s; what names the
// event in that error.
func (f *Fleet) Await(ctx context.Context, what string, match func(Event) bool) (Event, error) {
	timeout := time.After(awaitLimit)
	for next := 0; ; {
		f.mu.Lock()
		fresh, grown := f.events[next:], f.grown
		f.mu.Unlock()
		next += len(fresh)
		for _, e := range fresh {
			if match(e) {
				return e, nil
			}
			if e.Kind == Ended && e.Text != "" {
				return e, fmt.Errorf("%s failed: %s", e.From, e.Text)
			}
		}
		select {
		case <-grown:
		case <-timeout:
			return Event{}, fmt.Errorf("after %v there was no word of: %s", awaitLimit, what)
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// AwaitFrom is Await for the first event of a kind that a process reports.
func (f *Fleet) AwaitFrom(ctx context.Context, name, kind string) (Event, error) {
	return f.Await(ctx, name+" "+kind, func(e Event) bool { return e.From == name && e.Kind == kind })
}

// Stop asks all processes to end, and returns when they have. Its error says
// which of them failed, at any time.
func (f *Fleet) Stop(ctx context.Context) error {
	for _, p := range f.all() {
		p.Stop()
	}
	for _, p := range f.all() {
		select {
		case <-p.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, e := range f.Events() {
		if e.Kind == Ended && e.Text != "" {
			return fmt.Errorf("%s failed: %s", e.From, e.Text)
		}
	}
	return nil
}

// Close kills the processes that are left: nothing that was started outlives the
// run.
func (f *Fleet) Close() {
	for _, p := range f.all() {
		p.Kill()
	}
}

func (f *Fleet) all() []*Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.processes)
}

// Send sends the process an order.
func (p *Process) Send(line string) error {
	_, err := io.WriteString(p.stdin, line+"\n")
	return err
}

// Stop asks the process to end. A process that fails at its end has failed.
func (p *Process) Stop() { _ = p.stdin.Close() } // closed already where it was asked before

// Kill ends the process as a crash would, and returns when its last report was
// read.
func (p *Process) Kill() {
	p.mu.Lock()
	p.mayEnd = true
	p.mu.Unlock()
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
}

func (p *Process) endIsExpected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mayEnd
}

// Pause stops the process so that it does not notice (SIGSTOP).
func (p *Process) Pause() error { return Pause(p.cmd.Process) }

// Resume lets a paused process go on (SIGCONT).
func (p *Process) Resume() error { return Resume(p.cmd.Process) }
