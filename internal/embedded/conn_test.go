package embedded

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// both runs fn with both ends of a connection, outside and inside a bubble.
func both(t *testing.T, fn func(t *testing.T, a, b net.Conn)) {
	run := func(t *testing.T) {
		a, b := newConn()
		fn(t, a, b)
	}
	t.Run("outside a bubble", run)
	t.Run("inside a bubble", func(t *testing.T) { synctest.Test(t, run) })
}

func TestWritesDoNotWaitForTheReader(t *testing.T) {
	both(t, func(t *testing.T, a, b net.Conn) {
		sent := bytes.Repeat([]byte("0123456789"), 100_000)
		for _, end := range []net.Conn{a, b} {
			if n, err := end.Write(sent); n != len(sent) || err != nil {
				t.Fatalf("wrote %d, %v", n, err)
			}
		}
		_ = a.Close()
		if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("read %d bytes, %v; want %d bytes", len(got), err, len(sent))
		}
		if _, err := b.Write(sent); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a write to an end that is closed: %v", err)
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a read from a closed end: %v", err)
		}
	})
}

// A read that waits ends with the other end, with its own end, and at its deadline, which may
// be set before it begins and while it waits.
func TestWaitingReadEnds(t *testing.T) {
	for name, c := range map[string]struct {
		before, meanwhile func(a, b net.Conn)
		want              error
	}{
		"other end closed": {nil, func(_, b net.Conn) { _ = b.Close() }, io.EOF},
		"own end closed":   {nil, func(a, _ net.Conn) { _ = a.Close() }, io.ErrClosedPipe},
		"deadline":         {func(a, _ net.Conn) { _ = a.SetReadDeadline(time.Now().Add(time.Millisecond)) }, nil, os.ErrDeadlineExceeded},
		"deadline without a monotonic time": {
			func(a, _ net.Conn) { _ = a.SetDeadline(time.Now().Add(time.Millisecond).Round(0)) }, nil, os.ErrDeadlineExceeded,
		},
		"deadline set while it waits": {
			func(a, _ net.Conn) { _ = a.SetDeadline(time.Now().Add(time.Hour)) },
			func(a, _ net.Conn) { _ = a.SetDeadline(time.Now()) },
			os.ErrDeadlineExceeded,
		},
		"bytes after a deadline was taken back": {
			func(a, _ net.Conn) { _ = a.SetReadDeadline(time.Now()); _ = a.SetReadDeadline(time.Time{}) },
			func(_, b net.Conn) { _, _ = b.Write([]byte("x")) },
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, a, b net.Conn) {
				if c.before != nil {
					c.before(a, b)
				}
				read := make(chan error)
				go func() {
					_, err := a.Read(make([]byte, 8))
					read <- err
				}()
				if c.meanwhile != nil {
					time.Sleep(time.Millisecond) // so that the read usually waits
					c.meanwhile(a, b)
				}
				if err := <-read; !errors.Is(err, c.want) {
					t.Errorf("the read ends with %v; want %v", err, c.want)
				}
			})
		})
	}
}

func TestWriteDeadlineAndClosedEnds(t *testing.T) {
	a, b := newConn()
	_ = a.SetWriteDeadline(time.Now())
	if _, err := a.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write after its deadline: %v", err)
	}
	_ = a.SetWriteDeadline(time.Time{})
	if _, err := a.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	_ = a.Close()
	if err := b.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Errorf("a read deadline while there is something to read: %v", err)
	}
	if err := b.SetWriteDeadline(time.Time{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write deadline after the other end was closed: %v", err)
	}
	for _, err := range []error{a.SetReadDeadline(time.Time{}), a.SetWriteDeadline(time.Time{})} {
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a deadline on a closed end: %v", err)
		}
	}
}
