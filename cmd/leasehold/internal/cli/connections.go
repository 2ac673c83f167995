package cli

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

// The page's bounds on connections, of all clients and of one address. A request takes a
// connection of its own.
const (
	mostConnections = 512
	mostOfAClient   = 64
)

// bounded is a listener that keeps at most so many connections. Beyond that the oldest one
// that was never answered is closed for a new one: clients that send their requests byte by
// byte do not keep a browser out. Where all were answered, the new one is closed.
type bounded struct {
	net.Listener
	most, perClient int

	mu  sync.Mutex
	all []*counted // oldest first
}

// counted is a connection of a bounded listener.
type counted struct {
	net.Conn
	of       *bounded
	client   string
	answered atomic.Bool
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client, _, err := net.SplitHostPort(c.RemoteAddr().String())
		if err != nil {
			client = c.RemoteAddr().String()
		}
		if x := (&counted{Conn: c, of: b, client: client}); b.admit(x) {
			return x, nil
		}
		_ = c.Close()
	}
}

// admit makes room for a connection, and reports whether there is some.
func (b *bounded) admit(x *counted) bool {
	b.mu.Lock()
	own := 0
	for _, c := range b.all {
		if c.client == x.client {
			own++
		}
	}
	at := -1
	switch {
	case own >= b.perClient:
		at = slices.IndexFunc(b.all, func(c *counted) bool { return c.client == x.client && !c.answered.Load() })
	case len(b.all) >= b.most:
		at = slices.IndexFunc(b.all, func(c *counted) bool { return !c.answered.Load() })
	default:
		b.all = append(b.all, x)
		b.mu.Unlock()
		return true
	}
	if at < 0 {
		b.mu.Unlock()
		return false
	}
	old := b.all[at]
	b.all = append(slices.Delete(b.all, at, at+1), x)
	b.mu.Unlock()
	_ = old.Conn.Close()
	return true
}

func (c *counted) Write(p []byte) (int, error) {
	c.answered.Store(true)
	return c.Conn.Write(p)
}

func (c *counted) Close() error {
	c.of.mu.Lock()
	if at := slices.Index(c.of.all, c); at >= 0 {
		c.of.all = slices.Delete(c.of.all, at, at+1)
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}
