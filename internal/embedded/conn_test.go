package embedded

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

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
		wait := func(t *testing.T) {
			a, b := newConn()
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
		}
		t.Run(name, wait)
		t.Run(name+", in a bubble", func(t *testing.T) { synctest.Test(t, wait) })
	}
}
