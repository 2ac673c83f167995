package embedded

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// newConn returns both ends of a connection in memory. Unlike the ends of net.Pipe they have a buffer each,
// without a bound, so a write never waits for a reader. A client sends a whole pipeline before it reads the
// first reply, and the server writes a reply before it reads the next command. Without a buffer the two would
// wait for each other as soon as the pipeline is longer than what the server reads at a time.
//
// A goroutine that reads waits on a sync.Cond. So it counts as idle in a synctest bubble.
func newConn() (client, server net.Conn) {
	there, back := newStream(), newStream()
	return &conn{in: back, out: there}, &conn{in: there, out: back}
}

// conn is one end of a connection. Its errors are those of net.Pipe.
type conn struct {
	in, out *stream
}

type stream struct {
	mu      sync.Mutex
	changed sync.Cond // something that a reader waits for has changed
	buf     bytes.Buffer

	written, read           bool      // the end that writes, or reads, is closed
	writeBefore, readBefore time.Time // the deadlines; zero: none
}

func newStream() *stream {
	s := new(stream)
	s.changed.L = &s.mu
	return s
}

func (c *conn) Read(p []byte) (int, error) {
	s := c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.read:
			return 0, io.ErrClosedPipe
		case over(s.readBefore):
			return 0, os.ErrDeadlineExceeded
		case s.buf.Len() > 0 || len(p) == 0:
			return s.buf.Read(p)
		case s.written:
			return 0, io.EOF
		}
		s.wait()
	}
}

// wait waits until something has changed or the reader's deadline is over. Called with the
// lock. The timer cannot be missed: its function needs the lock, which only Wait gives up.
func (s *stream) wait() {
	if !s.readBefore.IsZero() {
		defer time.AfterFunc(time.Until(s.readBefore), s.wake).Stop()
	}
	s.changed.Wait()
}

func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

func (c *conn) Write(p []byte) (int, error) {
	s := c.out
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.written, s.read:
		return 0, io.ErrClosedPipe
	case over(s.writeBefore):
		return 0, os.ErrDeadlineExceeded
	}
	s.changed.Broadcast()
	return s.buf.Write(p)
}

// Close ends waiting reads of both ends. The other end can still read what was written.
func (c *conn) Close() error {
	c.out.set(func() { c.out.written = true })
	c.in.set(func() { c.in.read, c.in.buf = true, bytes.Buffer{} })
	return nil
}

func (s *stream) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.changed.Broadcast()
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) (err error) {
	c.in.set(func() {
		if c.in.readBefore = monotonic(t); c.in.read {
			err = io.ErrClosedPipe
		}
	})
	return err
}

// SetWriteDeadline fails after either end was closed. So a client notices a closed connection
// before it sends anything.
func (c *conn) SetWriteDeadline(t time.Time) (err error) {
	c.out.set(func() {
		if c.out.writeBefore = monotonic(t); c.out.written || c.out.read {
			err = io.ErrClosedPipe
		}
	})
	return err
}

func over(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// monotonic returns t with a reading of the monotonic clock, on which the timers run. A t from
// elsewhere may have none, and the wall clock may jump.
func monotonic(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	now := time.Now()
	return now.Add(t.Sub(now))
}

func (c *conn) LocalAddr() net.Addr  { return address{} }
func (c *conn) RemoteAddr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "memory" }
