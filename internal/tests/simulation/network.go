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
	"strings"
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

	mu      sync.Mutex
	over    bool    // no more faults
	replies []reply // that came
}

// reply is when a reply came, and for which client.
type reply struct {
	at     time.Duration
	client int
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

// conn is one connection.
type conn struct {
	l      *line
	number int
	far    net.Conn // the other end than the client's

	mu         sync.Mutex
	useless    bool // and the client has not found out
	closed     bool
	silent     map[string]bool // a direction from which nothing comes any more
	subscribed bool
}

// clientSide is the connection as the client has it.
type clientSide struct {
	net.Conn
	c *conn
}

func (s clientSide) Close() error {
	c := s.c
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	c.found()
	return s.Conn.Close()
}

func (c *conn) found() {
	c.mu.Lock()
	was := c.useless
	c.useless = false
	c.mu.Unlock()
	if was {
		c.l.mu.Lock()
		c.l.stale--
		c.l.noticed = time.Now()
		c.l.mu.Unlock()
	}
}

// spoil notes that the connection is of no use any more.
func (c *conn) spoil() {
	c.mu.Lock()
	news := !c.useless && !c.closed
	c.useless = c.useless || news
	c.mu.Unlock()
	if news {
		c.l.mu.Lock()
		c.l.stale++
		c.l.mu.Unlock()
	}
}

func (c *conn) cut() {
	c.spoil()
	_ = c.far.Close()
}

// latency differs by client, connection and direction, so that little happens at
// the same instant, where goroutines run in any order.
func (c *conn) latency(dir string) time.Duration {
	d := 211*time.Microsecond + time.Duration(c.l.client)*37_003 + time.Duration(c.number%61)*1_709
	if dir == replies {
		d += 13_007
	}
	return d
}

// arrival is when what is sent now arrives.
func (c *conn) arrival(dir string, sent time.Time) time.Time {
	at := sent.Add(c.latency(dir))
	for _, f := range c.l.n.at(slow, c.l.client, sent) {
		if f.dir == dir {
			at = at.Add(f.by)
		}
	}
	for {
		stalls := c.l.n.at(stall, c.l.client, at)
		if len(stalls) == 0 {
			return at
		}
		at = c.l.n.start.Add(stalls[0].at + stalls[0].span + c.latency(dir))
	}
}

// passes says what becomes of what is sent now.
func (c *conn) passes(dir string, what []byte) (passes, ends bool) {
	c.mu.Lock()
	if dir == requests && strings.Contains(strings.ToLower(string(what[:min(len(what), 64)])), "subscribe") {
		c.subscribed = true
	}
	silent, subscribed := c.silent[dir], c.subscribed
	c.mu.Unlock()
	if silent {
		return false, false
	}
	now := time.Now()
	if dir == replies {
		c.l.n.mu.Lock()
		c.l.n.replies = append(c.l.n.replies, reply{now.Sub(c.l.n.start), c.l.client})
		c.l.n.mu.Unlock()
	}
	if subscribed && dir == replies {
		if _, lost := c.l.n.meets(lose, c.l.client, now, messages); lost {
			return false, false
		}
	}
	f, lost := c.l.n.meets(lose, c.l.client, now, dir)
	if !lost {
		return true, false
	}
	if f.silent {
		c.mu.Lock()
		c.silent[dir] = true
		c.mu.Unlock()
		c.spoil()
		return false, false
	}
	return false, true
}

// carry takes bytes from one end and delivers them to the other, in order. It never stops reading, and delivers what
// it has read also after the reading side has ended: that is how a call runs after its caller has given up.
func (c *conn) carry(dir string, from, to net.Conn) {
	type chunk struct {
		bytes []byte
		at    time.Time
	}
	waiting := make(chan chunk, 512)
	go func() {
		defer close(waiting)
		buf := make([]byte, 16<<10)
		for last := (time.Time{}); ; {
			k, err := from.Read(buf)
			if k > 0 {
				passes, ends := c.passes(dir, buf[:k])
				if ends {
					c.cut()
				}
				if passes {
					if at := c.arrival(dir, time.Now()); at.After(last) {
						last = at
					}
					waiting <- chunk{slices.Clone(buf[:k]), last}
				}
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() {
		_ = to.Close()
		for range waiting { // until the reader has ended
		}
	}()
	for next := range waiting {
		time.Sleep(time.Until(next.at))
		if _, err := to.Write(next.bytes); err != nil {
			return
		}
	}
}
