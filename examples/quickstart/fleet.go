package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

// fleet is children of one role. What they report comes from one channel, each
// child's events in their order, with gone as its last.
type fleet struct {
	ctx    context.Context
	cancel context.CancelFunc
	role   string
	events chan event
	kids   map[int]*child
}

type child struct {
	num   int
	cmd   *exec.Cmd
	stdin io.WriteCloser
	began stamp
	done  chan struct{} // closed when the process has ended
}

func newFleet(ctx context.Context, role string) *fleet {
	ctx, cancel := context.WithCancel(ctx)
	return &fleet{ctx: ctx, cancel: cancel, role: role, events: make(chan event, 1000), kids: map[int]*child{}}
}

// start starts this program again, as child num. When ctx ends, the child's
// stdin is closed; if it is still there two seconds later, it is killed.
func (f *fleet) start(num int, srv *demo.Server, name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(f.ctx, self, f.role, strconv.Itoa(num), name)
	// By the environment: arguments are for everybody to see.
	cmd.Env = append(os.Environ(), "REDIS_URL="+srv.URL)
	cmd.WaitDelay = 2 * time.Second
	demo.OwnGroup(cmd)
	var said bytes.Buffer
	cmd.Stderr = &said // into the live display it would be printed
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Cancel = stdin.Close
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	c := &child{num: num, cmd: cmd, stdin: stdin, began: now(), done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s %d: %w", f.role, num, err)
	}
	f.kids[num] = c
	go func() {
		f.read(c, stdout)
		err := cmd.Wait()
		end := event{At: now(), Kind: gone, Child: num}
		if err != nil {
			end.Fault = strings.TrimSpace(fmt.Sprintf("%v\n%s", err, said.String()))
		}
		f.pass(end)
		close(c.done)
	}()
	return nil
}

// read passes on what a child reports until its stdout ends.
func (f *fleet) read(c *child, stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // half a line: the child was killed while it wrote
		}
		if e.At < c.began || e.At > now() {
			e.Kind = badClock
		}
		e.Child = c.num
		f.pass(e)
	}
}

// pass hands an event to the goroutine that runs the show, which is gone when ctx has
// ended.
func (f *fleet) pass(e event) {
	select {
	case f.events <- e:
	case <-f.ctx.Done():
	}
}

// stop asks all children to end.
func (f *fleet) stop() {
	for _, c := range f.kids {
		_ = c.stdin.Close() // closed already where the child was killed
	}
}

// close ends whoever is left, at once, and returns when they are gone: nothing
// that was started outlives the show.
func (f *fleet) close() {
	f.cancel() // first, so that no child's events keep it from ending
	for _, c := range f.kids {
		_ = c.cmd.Process.Kill() // gone already, as a rule
		<-c.done
	}
}
