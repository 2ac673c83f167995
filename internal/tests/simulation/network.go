package simulation

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// network is between the clients and the server. What becomes of a message
// depends on the schedule and on when it is sent, on nothing else.
type network struct {
	dial   func() (net.Conn, error)
	start  time.Time
	faults map[verb][]step

	mu   sync.Mutex
	over bool // no more faults
}

func newNetwork(s schedule, dial func() (net.Conn, error)) *network {
	n := &network{dial: dial, start: time.Now(), faults: map[verb][]step{}}
	for _, st := range s {
		switch st.verb {
		case lose, slow, stall, refuse, misuse:
			n.faults[st.verb] = append(n.faults[st.verb], st)
		}
	}
	return n
}

// heal ends all faults for good.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
}

// at lists the faults of a kind that a client meets at a time.
func (n *network) at(kind verb, client int, t time.Time) []step {
	n.mu.Lock()
	over := n.over
	n.mu.Unlock()
	if over {
		return nil
	}
	since := t.Sub(n.start)
	var now []step
	for _, f := range n.faults[kind] {
		if (f.client == client || f.client == everybody) && f.at <= since && since < f.at+f.span {
			now = append(now, f)
		}
	}
	return now
}

func (n *network) meets(kind verb, client int, t time.Time, dir string) (step, bool) {
	for _, f := range n.at(kind, client, t) {
		if f.dir == dir {
			return f, true
		}
	}
	return step{}, false
}

// line is one client's way to the server.
type line struct {
	n      *network
	client int

	mu    sync.Mutex
	gone  bool // the client is dead
	made  int
	conns map[*conn]struct{}
	stale int // connections that have ended, or are silent, and the client has not found out
	// noticed is when the client found out about the last one.
	noticed time.Time
}

func (n *network) line(client int) *line {
	return &line{n: n, client: client, conns: map[*conn]struct{}{}}
}

var (
	errNoRoute = errors.New("no route")
	errDead    = errors.New("the client is dead")
	errHook    = errors.New("the hook fails")
)

// Dial is the client's Dialer.
func (l *line) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		now := time.Now()
		if len(l.n.at(refuse, l.client, now)) > 0 {
			return nil, &net.OpError{Op: "dial", Err: errNoRoute}
		}
		stalls := l.n.at(stall, l.client, now)
		if len(stalls) == 0 {
			break
		}
		f := stalls[0]
		select {
		case <-time.After(l.n.start.Add(f.at + f.span).Sub(now)):
		case <-ctx.Done():
		}
	}
	server, err := l.n.dial()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	if l.gone {
		l.mu.Unlock()
		_ = server.Close()
		return nil, errDead
	}
	near, far := net.Pipe()
	c := &conn{l: l, number: l.made, far: far, silent: map[string]bool{}}
	l.made++
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	go c.carry(requests, far, server)
	go c.carry(replies, server, far)
	return clientSide{near, c}, nil
}

// hook is a hook of the client's.
func (l *line) hook(_ context.Context, cmds []redis.Cmder, send func() error) error {
	all := l.n.at(misuse, l.client, time.Now())
	if len(all) == 0 {
		return send()
	}
	f := all[0]
	var err error
	if f.late && f.dir != swallows || f.dir == again {
		err = send()
	}
	switch {
	case f.dir == panics, f.dir == exits && panicsInstead(cmds):
		panic(errHook)
	case f.dir == exits:
		runtime.Goexit()
	case f.dir == fails:
		return errHook
	case err != nil:
		return send() // again
	}
	return nil
}

// panicsInstead reports whether a hook is not to call Goexit: on a caller's own goroutine, because then nobody is left
// to be judged, and as go-redis sets a connection up, because go-redis then uses it with that command's reply under way.
func panicsInstead(cmds []redis.Cmder) bool {
	stack := debug.Stack()
	return bytes.Contains(stack, []byte("simulation.(*world).")) || bytes.Contains(stack, []byte("simulation.(*quorum")) ||
		slices.Contains([]string{"hello", "client", "auth", "select"}, cmds[0].Name())
}

// cut ends all connections, the oldest first.
func (l *line) cut() {
	l.mu.Lock()
	all := slices.SortedFunc(maps.Keys(l.conns), func(a, b *conn) int { return a.number - b.number })
	l.mu.Unlock()
	for _, c := range all {
		c.cut()
	}
}

// die ends them for good.
func (l *line) die() {
	l.mu.Lock()
	l.gone = true
	l.mu.Unlock()
	l.cut()
}

// unnoticed reports whether the client has connections that are of no use, or found out
// about the last of them just now: each call that met one is sent again after a pause.
func (l *line) unnoticed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stale > 0 || time.Since(l.noticed) < longestPause
}

// longestPause is longer than any pause between two tries of a call.
const longestPause = 3 * time.Second
