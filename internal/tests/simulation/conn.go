package simulation

import (
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

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
