package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Fleet is the child processes of a run, and all that they have reported.
type Fleet struct {
	Run string // a name that keeps the run apart from others on the same server

	show      *Show
	processes []*Process

	mu     sync.Mutex
	events []Event
	grown  chan struct{} // closed when an event is added, and replaced
}

// Process is a child process as its parent sees it.
type Process struct {
	Name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	done   chan struct{} // closed when it has ended and its reports are read
	killed atomic.Bool   // its end is no failure
}

// Fleet has no process yet. What is left of it is killed when the show ends.
func (s *Show) Fleet() *Fleet {
	f := &Fleet{Run: RunName(), show: s, grown: make(chan struct{})}
	s.Defer(func() {
		for _, p := range f.processes {
			p.Kill()
		}
	})
	return f
}

// Start starts this program again, as a child with a role.
func (f *Fleet) Start(name, role string, args ...string) *Process {
	cmd := exec.Command(Must(os.Executable()))
	id := Must(json.Marshal(Child{Name: name, Run: f.Run, Args: args, Role: role, URL: f.show.URL}))
	cmd.Env = append(os.Environ(), envChild+"="+string(id))
	ownGroup(cmd)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	p := &Process{Name: name, cmd: cmd, stdin: Must(cmd.StdinPipe()), done: make(chan struct{})}
	stdout := Must(cmd.StdoutPipe())
	Check(cmd.Start())
	f.processes = append(f.processes, p)
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var e Event
			if json.Unmarshal(lines.Bytes(), &e) == nil { // else half a line: it was killed while it wrote
				f.add(p, e)
			}
		}
		err := cmd.Wait()
		ended := Event{At: time.Now(), Kind: Ended}
		if err != nil && !p.killed.Load() {
			ended.Text = strings.TrimSpace(fmt.Sprintf("%v\n%s", err, stderr.String()))
		}
		f.add(p, ended)
	}()
	return p
}

func (f *Fleet) add(p *Process, e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.From, e.Index = p.Name, len(f.events)
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

// Await returns the first event of all that is like want: each field of want that is
// set is the event's, and the event is neither before want.Index nor before want.At. The
// show ends where a process failed, and where the event does not come within 25 s.
func (f *Fleet) Await(want Event) Event {
	timeout := time.After(awaitLimit)
	for next := 0; ; {
		f.mu.Lock()
		fresh, grown := f.events[next:], f.grown
		f.mu.Unlock()
		next += len(fresh)
		for _, e := range fresh {
			if e.isLike(want) {
				return e
			}
			Check(e.failure())
		}
		select {
		case <-grown:
		case <-timeout:
			Check(fmt.Errorf("after %v there was no event like %+v", awaitLimit, want))
		case <-f.show.Ctx.Done():
			Check(f.show.Ctx.Err())
		}
	}
}

// Stop asks all processes to end, and returns when they have. The show ends where one
// has failed, at any time.
func (f *Fleet) Stop() {
	for _, p := range f.processes {
		p.Stop()
	}
	for _, p := range f.processes {
		select {
		case <-p.done:
		case <-f.show.Ctx.Done():
			Check(f.show.Ctx.Err())
		}
	}
	for _, e := range f.Events() {
		Check(e.failure())
	}
}

// Send sends the process an order.
func (p *Process) Send(line string) { Must(io.WriteString(p.stdin, line+"\n")) }

// Cut has Redis be away for the process.
func (p *Process) Cut() { p.Send(cut) }

// Mend ends that. The process may have ended meanwhile.
func (p *Process) Mend() { _, _ = io.WriteString(p.stdin, mend+"\n") }

// Stop asks the process to end. A process that fails at its end has failed.
func (p *Process) Stop() { _ = p.stdin.Close() } // closed already where it was asked before

// Kill ends the process as a crash would, and returns when its last report was
// read.
func (p *Process) Kill() {
	p.killed.Store(true)
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
}

// Pause stops the process so that it does not notice (SIGSTOP).
func (p *Process) Pause() { Check(p.cmd.Process.Signal(sigStop)) }

// Resume lets a paused process go on (SIGCONT).
func (p *Process) Resume() { Check(p.cmd.Process.Signal(sigCont)) }
