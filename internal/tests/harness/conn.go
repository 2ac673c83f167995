package harness

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Dialer makes connections over the wire, with dial or else as usual.
func (w *Wire) Dialer(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		w.mu.Lock()
		gate := w.gates[dialGate]
		w.mu.Unlock()
		if gate != nil {
			select {
			case <-gate:
			case <-ctx.Done():
				return nil, ErrCut
			}
		}
		c, err := dial(ctx, network, addr)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err == nil && w.isCut {
			_ = c.Close()
			return nil, ErrCut
		}
		if err == nil {
			c = &counted{c, w}
			w.conns = append(w.conns, c)
		}
		return c, err
	}
}

// counted is a connection whose writes are counted.
type counted struct {
	net.Conn
	w *Wire
}

func (c *counted) Write(b []byte) (int, error) {
	c.w.mu.Lock()
	if c.w.trips == nil {
		c.w.trips = map[string]int{}
	}
	words := bytes.Split(b, []byte("\r\n"))
	carries := map[string]bool{}
	for i, word := range words {
		switch name := string(word); {
		case name == "get":
			carries["get"] = true
		case (name == "evalsha" || name == "eval") && i+2 < len(words):
			carries[tripName(string(words[i+2]))] = true // behind the word's length
		}
	}
	for name := range carries {
		c.w.trips[name]++
	}
	c.w.mu.Unlock()
	n, err := c.Conn.Write(b)
	return n, asNetwork(err)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, asNetwork(err)
}

func (c *counted) SetDeadline(t time.Time) error     { return asNetwork(c.Conn.SetDeadline(t)) }
func (c *counted) SetReadDeadline(t time.Time) error { return asNetwork(c.Conn.SetReadDeadline(t)) }

func (c *counted) SetWriteDeadline(t time.Time) error { return asNetwork(c.Conn.SetWriteDeadline(t)) }

// asNetwork makes the error of a pipe that is cut into that of a network.
func asNetwork(err error) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return ErrCut
	}
	return err
}

// TripCount is how many round trips there were, by what they carried. What goes to one server together is one write.
type TripCount struct{ Gets, Scripts, Times int }

// tripName is what a round trip counts as by a script that it carries.
func tripName(script string) string {
	switch name := call.ScriptName(script); name {
	case "time", "renew", "load renew", "totals renew":
		return name
	}
	return "script"
}

// TripCounter counts round trips since it was last asked. It leaves out renewals: the handle renews a lease that is
// older than 100 ms when its holder begins to listen, and on a machine that stood still any lease may be.
func (w *Wire) TripCounter() func() TripCount {
	now := func() TripCount {
		w.mu.Lock()
		defer w.mu.Unlock()
		return TripCount{w.trips["get"], w.trips["script"], w.trips["time"]}
	}
	last := now()
	return func() TripCount {
		n := now()
		d := TripCount{n.Gets - last.Gets, n.Scripts - last.Scripts, n.Times - last.Times}
		last = n
		return d
	}
}

var scriptNames sync.Map // by what is on the wire

// Script is what a command on the wire does: a script of ours by its name, or the command's own name.
func Script(cmd []string) string {
	switch {
	case len(cmd) == 0:
		return ""
	case len(cmd) == 1 || !strings.HasPrefix(cmd[0], "EVAL"):
		return cmd[0]
	}
	name, ok := scriptNames.Load(cmd[1])
	if !ok {
		name, _ = scriptNames.LoadOrStore(cmd[1], call.ScriptName(cmd[1]))
	}
	return name.(string)
}

// Does matches a script or command on the wire.
func Does(name string) func(cmd []string) bool {
	return func(cmd []string) bool { return Script(cmd) == name }
}

// Answers tells of each good reply to a script that passes through a proxy from now on.
func Answers(p *redistest.Proxy, name string) <-chan struct{} {
	c := make(chan struct{}, 10_000)
	p.SetHook(func(ev redistest.Event) redistest.Action {
		if ev.Stage == redistest.OnReply && !ev.Failed() && Script(ev.Cmd) == name {
			c <- struct{}{}
		}
		return redistest.Pass
	})
	return c
}

// Integers are the leading integers of a script's reply on the wire; nil where it is an error.
func Integers(reply []byte) []int64 {
	var all []int64
	for i, line := range strings.Split(strings.TrimSpace(string(reply)), "\r\n") {
		if i == 0 && line[0] == '*' {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimPrefix(line, ":"), 10, 64)
		if err != nil {
			return nil
		}
		all = append(all, n)
	}
	return all
}
