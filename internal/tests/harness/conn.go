package harness

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
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
