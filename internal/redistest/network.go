package redistest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Network is a bad one, for a simulation: between each client and the server it
// delays, loses and cuts by chance, from one seed. What was under way when a
// connection ended may still arrive: that is how a call runs after its caller
// has long given up.
type Network struct {
	dial func() (net.Conn, error)

	mu    sync.Mutex
	rng   *rand.Rand
	bad   bool // faults happen
	conns map[*link]struct{}
}

// NewNetwork makes a network, which is good until SetBad, to the server that dial
// connects to.
func NewNetwork(seed uint64, dial func() (net.Conn, error)) *Network {
	return &Network{dial: dial, rng: rand.New(rand.NewPCG(seed, 7)), conns: map[*link]struct{}{}}
}

// chance reports whether something with that probability happens now.
func (n *Network) chance(p float64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bad && n.rng.Float64() < p
}

// spread is a random duration: mostly short, sometimes up to most.
func (n *Network) spread(most time.Duration) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.bad {
		return 100 * time.Microsecond
	}
	f := n.rng.Float64()
	return 100*time.Microsecond + time.Duration(f*f*f*f*f*float64(most))
}

// SetBad says whether faults happen.
func (n *Network) SetBad(bad bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bad = bad
}

// CutSome ends each connection with probability p.
func (n *Network) CutSome(p float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.conns {
		if n.rng.Float64() < p {
			l.cut()
		}
	}
}

var errNoRoute = errors.New("no route")

// Dial is a client's Dialer.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n.chance(0.05) {
		return nil, &net.OpError{Op: "dial", Err: errNoRoute}
	}
	server, err := n.dial()
	if err != nil {
		return nil, err
	}
	mine, theirs := net.Pipe()
	l := &link{n: n, client: theirs, server: server}
	n.mu.Lock()
	n.conns[l] = struct{}{}
	n.mu.Unlock()
	go l.carry(theirs, server)
	go func() {
		l.carry(server, theirs)
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.conns, l)
	}()
	return mine, nil
}

// link is one connection.
type link struct {
	n              *Network
	client, server net.Conn
}

func (l *link) cut() { go l.client.Close() }

// carry takes bytes from one end and delivers them, late, to the other, in
// order. It never stops reading, and delivers what it has read also after the
// end of the reading side. It may lose the rest and end the connection.
func (l *link) carry(from, to net.Conn) {
	type chunk struct {
		bytes []byte
		at    time.Time
	}
	var mu sync.Mutex
	var waiting []chunk
	more := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			buf := make([]byte, 16<<10)
			k, err := from.Read(buf)
			if k > 0 {
				mu.Lock()
				at := time.Now().Add(l.n.spread(1500 * time.Millisecond))
				if len(waiting) > 0 && at.Before(waiting[len(waiting)-1].at) {
					at = waiting[len(waiting)-1].at
				}
				waiting = append(waiting, chunk{buf[:k], at})
				mu.Unlock()
				select {
				case more <- struct{}{}:
				default:
				}
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() {
		_ = to.Close()
		_ = from.Close()
		<-ended
	}()
	for {
		mu.Lock()
		var next chunk
		if len(waiting) > 0 {
			next, waiting = waiting[0], waiting[1:]
		}
		mu.Unlock()
		if next.bytes == nil {
			select {
			case <-more:
				continue
			case <-ended:
				mu.Lock()
				left := len(waiting)
				mu.Unlock()
				if left == 0 {
					return
				}
				continue
			}
		}
		time.Sleep(time.Until(next.at))
		if l.n.chance(0.01) {
			return // this and the rest are lost
		}
		if _, err := to.Write(next.bytes); err != nil && !errors.Is(err, io.EOF) {
			return
		}
	}
}
