package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

// fleet is the server processes. Its ctx ends when one of them does, with that
// as its cause.
type fleet struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	rec    *record
	kids   []*kid

	mu    sync.Mutex // one order at a time
	epoch int
}

type kid struct {
	cmd   *exec.Cmd
	stdin io.Closer
	addr  string
	done  chan struct{} // closed when the process has ended
}

var errOver = errors.New("all is over")

func newFleet(ctx context.Context, rec *record) *fleet {
	ctx, cancel := context.WithCancelCause(ctx)
	return &fleet{ctx: ctx, cancel: cancel, rec: rec}
}

// start starts this program again, as the server process of a job, and waits for
// its address. When ctx ends, its stdin is closed; if it is still there five
// seconds later, it is killed.
func (f *fleet) start(j job, srv *demo.Server) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	arg, err := json.Marshal(j)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(f.ctx, self, childArg, string(arg))
	// By the environment: arguments are for everybody to see.
	cmd.Env = append(os.Environ(), "REDIS_URL="+srv.URL)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 5 * time.Second
	demo.OwnGroup(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Cancel = stdin.Close
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start process %d: %w", j.Process, err)
	}
	c := &kid{cmd: cmd, stdin: stdin, done: make(chan struct{})}
	f.kids = append(f.kids, c)
	said := make(chan string, 1)
	go func() {
		defer close(c.done)
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		said <- line
		_, _ = io.Copy(io.Discard, stdout)
		err := cmd.Wait()
		f.cancel(fmt.Errorf("process %d ended by itself: %v", j.Process, err)) // unless it was told to
	}()
	select {
	case line := <-said:
		if c.addr = string(bytes.TrimSpace([]byte(line))); c.addr == "" {
			<-c.done
			return context.Cause(f.ctx)
		}
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("process %d does not say where it listens", j.Process)
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	}
}

func (f *fleet) addrs() (all []string) {
	for _, c := range f.kids {
		all = append(all, c.addr)
	}
	return all
}

// change makes all processes answer in another mode.
func (f *fleet) change(m mode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
	next := order{f.epoch, m}
	f.rec.open(next) // before anything can be counted there
	body, err := json.Marshal(next)
	if err != nil {
		return err
	}
	for _, c := range f.kids {
		if err := f.post("http://"+c.addr+"/order", body); err != nil {
			return err
		}
	}
	return nil
}

// invalidate has the first process do it: that is enough for all of them.
func (f *fleet) invalidate() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rec.invalidate()
	defer f.rec.invalidate()
	return f.post("http://"+f.kids[0].addr+"/invalidate", nil)
}

func (f *fleet) post(url string, body []byte) error {
	ctx, cancel := context.WithTimeout(f.ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500))
		return fmt.Errorf("%s: %s", res.Status, text)
	}
	return nil
}

// close ends the processes, and returns when they are gone: nothing that was
// started outlives the program.
func (f *fleet) close() {
	f.cancel(errOver)
	for _, c := range f.kids {
		<-c.done
	}
}
