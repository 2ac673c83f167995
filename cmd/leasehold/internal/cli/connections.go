package cli

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// The page's bounds on connections, of all clients and of one address, and on the requests of one address: some
// at once, and so many a second. A browser makes six and then one for each change of what it shows.
const (
	mostConnections = 512
	mostOfAClient   = 64
	mostRequests    = 100
	requestsASecond = 20
	mostClients     = 4096 // beyond that all are forgotten, and may begin anew
)

// bounds answers a client that asks too often with 429.
type bounds struct {
	http.Handler

	mu      sync.Mutex
	clients map[string]*rate.Limiter
}

func (b *bounds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Logins and changes count apart: those of a client that guesses tokens keep no browser out.
	kind := " asks"
	if r.Method == http.MethodPost {
		kind = " posts"
	}
	if !b.of(clientOf(r.RemoteAddr) + kind).Allow() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "this address sends too many requests: wait a second", http.StatusTooManyRequests)
		return
	}
	b.Handler.ServeHTTP(w, r)
}

func (b *bounds) of(client string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clients == nil || len(b.clients) >= mostClients {
		b.clients = map[string]*rate.Limiter{}
	}
	if b.clients[client] == nil {
		b.clients[client] = rate.NewLimiter(requestsASecond, mostRequests)
	}
	return b.clients[client]
}

func clientOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// bounded is a listener that keeps at most so many connections. Beyond that the oldest one
// that was never answered is closed for a new one: clients that send their requests byte by
// byte do not keep a browser out. Where all were answered, the new one is closed.
type bounded struct {
	net.Listener
	most, perClient int

	mu  sync.Mutex
	all []*counted // oldest first
}

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
		if x := (&counted{Conn: c, of: b, client: clientOf(c.RemoteAddr().String())}); b.admit(x) {
			return x, nil
		}
		_ = c.Close()
	}
}

func (b *bounded) admit(x *counted) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
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
		return true
	}
	if at < 0 {
		return false
	}
	_ = b.all[at].Conn.Close()
	b.all = append(slices.Delete(b.all, at, at+1), x)
	return true
}

func (c *counted) Write(p []byte) (int, error) {
	c.answered.Store(true)
	return c.Conn.Write(p)
}

func (c *counted) Close() error {
	c.of.mu.Lock()
	c.of.all = slices.DeleteFunc(c.of.all, func(x *counted) bool { return x == c })
	c.of.mu.Unlock()
	return c.Conn.Close()
}
