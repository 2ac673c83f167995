package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Relay carries bytes between clients and one server, and understands none of them: for
// what is no exchange of commands and replies, such as replication, where a Proxy cannot
// stand, and for a network with a delay. It can be cut.
type Relay struct {
	listener net.Listener
	upstream string
	delay    time.Duration
	underWay chan piece     // in the order of their coming, which is that of their times
	readers  sync.WaitGroup // and what accepts
	writer   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	perByte time.Duration // how long the network is busy with a byte
	busy    time.Time     // until when it is busy with what has come
	open    map[net.Conn]struct{}
	healed  chan struct{} // closed while the relay is not cut
}

// piece is bytes under way.
type piece struct {
	to    net.Conn
	bytes []byte // none: from here on nothing follows
	due   time.Time
}

// NewRelay starts a relay to a server. Each byte takes delay in each direction, in its
// order; nothing else holds it up, however many are under way. It ends with the test.
func NewRelay(tb testing.TB, upstream string, delay time.Duration) *Relay {
	tb.Helper()
	r, err := StartRelay(upstream, delay)
	CheckNow(tb, err == nil, "start relay: %v", err)
	tb.Cleanup(r.Close)
	return r
}

// StartRelay is NewRelay for a process of its own. The caller closes it.
func StartRelay(upstream string, delay time.Duration) (*Relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{
		listener: listener, upstream: upstream, delay: delay, underWay: make(chan piece, 1<<14),
		open: map[net.Conn]struct{}{}, healed: make(chan struct{}),
	}
	close(r.healed)
	r.readers.Go(r.accept)
	r.writer.Go(r.carry)
	return r, nil
}

func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Limit makes the network carry so many bytes per second, of both directions together.
func (r *Relay) Limit(bytesPerSecond int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.perByte = time.Second / time.Duration(bytesPerSecond)
}

// due returns when n bytes that have come now are to go on.
func (r *Relay) due(n int) time.Time {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy.Before(now) {
		r.busy = now
	}
	r.busy = r.busy.Add(time.Duration(n) * r.perByte)
	return r.busy.Add(r.delay)
}

// Cut stops all bytes, and leaves the connections open: neither side is told.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.healed:
		r.healed = make(chan struct{})
	default: // it is cut
	}
}

// Heal ends a Cut: the bytes that were held go on.
func (r *Relay) Heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.healed:
	default:
		close(r.healed)
	}
}

// Close ends the relay and its connections. The end of the test calls it too.
func (r *Relay) Close() {
	r.mu.Lock()
	again := r.closed
	r.closed = true
	for conn := range r.open {
		_ = conn.Close()
	}
	r.mu.Unlock()
	if again {
		return
	}
	r.Heal()
	_ = r.listener.Close()
	r.readers.Wait()
	close(r.underWay)
	r.writer.Wait()
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		r.mu.Lock()
		if r.closed {
			_, _ = client.Close(), server.Close()
		} else {
			r.open[client], r.open[server] = struct{}{}, struct{}{}
			r.readers.Go(func() { r.read(server, client) })
			r.readers.Go(func() { r.read(client, server) })
		}
		r.mu.Unlock()
	}
}

// read takes what from sends to to.
func (r *Relay) read(to, from net.Conn) {
	for {
		b := make([]byte, 4<<10)
		n, err := from.Read(b)
		if n > 0 {
			r.underWay <- piece{to, b[:n], r.due(n)}
		}
		if err != nil {
			r.underWay <- piece{to: to, due: r.due(0)}
			r.mu.Lock()
			delete(r.open, from)
			r.mu.Unlock()
			_ = from.Close()
			return
		}
	}
}

// carry writes all pieces when they are due. One goroutine does, so that one thread sleeps.
func (r *Relay) carry() {
	exactThread()
	for p := range r.underWay {
		sleepUntil(p.due)
		r.mu.Lock()
		healed := r.healed
		r.mu.Unlock()
		<-healed
		if p.bytes == nil {
			_ = p.to.Close() // ends its reader, too
			continue
		}
		if _, err := p.to.Write(p.bytes); err != nil {
			_ = p.to.Close()
		}
	}
}
