package singleflight_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
)

// wire is a client's way to Redis, of any topology, that can be cut: its
// connections are then closed, no other is made, and commands fail without being
// sent. It also counts what is sent.
type wire struct {
	mu     sync.Mutex
	isCut  bool
	refuse func(name string) error
	gates  map[string]chan struct{} // by name: commands wait there before they are sent,
	locks  map[string]chan struct{} // and here, their replies
	apart  func()
	counts map[string]int // commands by name
	done   map[string]int // those of them that have been answered
	trips  map[string]int // writes to a connection that hold them
	conns  []net.Conn
}

var (
	errCut    = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("wire cut")}
	errSilent = &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
)

// cut closes the connections, and fails what is to be sent from now on.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

// fail fails, without sending it, each command for which that gives an error: of
// scripts the name is "load enter" and such.
func (w *wire) fail(why func(name string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = why
}

// cutOff fails all commands of these names as a network that is cut does.
func (w *wire) cutOff(names ...string) {
	w.fail(func(name string) error {
		for _, n := range names {
			if n == name {
				return errCut
			}
		}
		return nil
	})
}

// split sends what is in one pipeline one by one, and calls between in between.
func (w *wire) split(between func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apart = between
}

func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut, w.refuse, w.apart = false, nil, nil
	open(w.gates)
	open(w.locks)
	w.gates, w.locks = nil, nil
}

// sent is how many commands of these names were sent so far, of all names where
// there are none.
func (w *wire) sent(names ...string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return countOf(w.counts, names)
}

// answered is how many of them came back, well or not.
func (w *wire) answered(names ...string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return countOf(w.done, names)
}

// tripped is in how many writes they were: round trips, since what goes to one
// server together is one write.
func (w *wire) tripped(names ...string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return countOf(w.trips, names)
}

// back counts commands that came back.
func (w *wire) back(cmds []redis.Cmder, err error) error {
	if err := w.at(cmds, func() map[string]chan struct{} { return w.locks }); err != nil {
		for _, c := range cmds {
			c.SetErr(err)
		}
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = map[string]int{}
	}
	for _, c := range cmds {
		w.done[commandName(c)]++
	}
	return err
}

func countOf(of map[string]int, names []string) (n int) {
	for name, c := range of {
		counts := len(names) == 0
		for _, want := range names {
			counts = counts || want == name
		}
		if counts {
			n += c
		}
	}
	return n
}

// commandName is the command's name, in lower case; of a script "load enter" and such.
func commandName(c redis.Cmder) string {
	word := strings.ToLower(c.Name())
	if word == "evalsha" || word == "eval" {
		return call.ScriptName(c.Args()[1].(string))
	}
	return word
}

// pass counts commands in, unless they are to fail.
func (w *wire) pass(cmds []redis.Cmder) error {
	if err := w.at(cmds, func() map[string]chan struct{} { return w.gates }); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		return errCut
	}
	for _, c := range cmds {
		if w.refuse != nil {
			if err := w.refuse(commandName(c)); err != nil {
				return err
			}
		}
	}
	if w.counts == nil {
		w.counts = map[string]int{}
	}
	for _, c := range cmds {
		w.counts[commandName(c)]++
	}
	return nil
}

// dialer makes connections over the wire, with dial or else as usual.
func (w *wire) dialer(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		w.mu.Lock()
		gate := w.gates["dial"]
		w.mu.Unlock()
		if gate != nil {
			select {
			case <-gate:
			case <-ctx.Done():
				return nil, errCut
			}
		}
		c, err := dial(ctx, network, addr)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err == nil && w.isCut {
			_ = c.Close()
			return nil, errCut
		}
		if err == nil {
			c = &counted{c, w}
			w.conns = append(w.conns, c)
		}
		return c, err
	}
}

// DialHook leaves dialling alone.
func (w *wire) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook counts and cuts single commands.
func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := w.pass([]redis.Cmder{cmd}); err != nil {
			cmd.SetErr(err)
			return err
		}
		return w.back([]redis.Cmder{cmd}, next(ctx, cmd))
	}
}

// ProcessPipelineHook counts and cuts pipelines.
func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := w.pass(cmds); err != nil {
			for _, c := range cmds {
				c.SetErr(err)
			}
			return err
		}
		w.mu.Lock()
		between := w.apart
		w.mu.Unlock()
		if between == nil {
			return w.back(cmds, next(ctx, cmds))
		}
		var first error
		for i := range cmds {
			if i > 0 {
				between()
			}
			if err := next(ctx, cmds[i:i+1]); err != nil && first == nil {
				first = err
			}
		}
		return w.back(cmds, first)
	}
}
