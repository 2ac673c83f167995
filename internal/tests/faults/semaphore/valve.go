package semaphore

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/luascripts"
)

// valve stops one connection of a client after so many bytes, as a network does
// that loses its way in the middle of a packet: what the client wrote seems to
// be under way, and arrives when the valve is opened, though the client may have
// closed the connection by then.
type valve struct {
	mu      sync.Mutex
	armed   bool
	key     []byte     // of the enter, as a Redis key ends with it
	owner   *valveConn // the connection that it stops
	dir     int        // writes or reads
	left    int
	reached chan struct{}
	open    chan struct{}
	carried [2]int // bytes since arm, of the owner
}

var enterSHA = func() []byte {
	sum := sha1.Sum([]byte(luascripts.PermitsEnter()))
	return []byte(hex.EncodeToString(sum[:]))
}()

const (
	writes = iota
	reads
)

// arm stops the connection on which an enter of key goes out after n bytes in one
// direction.
func (v *valve) arm(key string, dir, n int) (reached <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.armed, v.owner, v.key, v.dir, v.left = true, nil, []byte(":"+key+"}"), dir, n
	v.reached, v.open = make(chan struct{}), make(chan struct{})
	v.carried = [2]int{}
	return v.reached
}

// release lets what was stopped go on, and returns how many bytes the connection
// had carried by then.
func (v *valve) release() [2]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.armed = false
	close(v.open)
	return v.carried
}

// take asks to carry up to n bytes. Where it may carry fewer, wait tells when
// the rest may go.
func (v *valve) take(c *valveConn, dir int, p []byte) (may int, wait <-chan struct{}) {
	n := len(p)
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.armed {
		return n, nil
	}
	if v.owner == nil && dir == writes && bytes.Contains(p, enterSHA) && bytes.Contains(p, v.key) {
		v.owner = c
	}
	if v.owner != c {
		return n, nil
	}
	if dir != v.dir || n < v.left {
		if dir == v.dir {
			v.left -= n
		}
		v.carried[dir] += n
		return n, nil
	}
	may = v.left
	v.left = 0
	v.carried[dir] += may
	select {
	case <-v.reached:
	default:
		close(v.reached)
	}
	return may, v.open
}

func (v *valve) install(o *redis.Options) {
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &valveConn{Conn: conn, v: v, closed: make(chan struct{})}, nil
	}
}

type valveConn struct {
	net.Conn
	v       *valve
	late    sync.WaitGroup // writes that are still under way
	closing sync.Once
	closed  chan struct{}
}

func (c *valveConn) Write(p []byte) (int, error) {
	may, wait := c.v.take(c, writes, p)
	n, err := c.Conn.Write(p[:may])
	if err != nil || wait == nil {
		return n, err
	}
	rest := append([]byte(nil), p[may:]...)
	c.late.Go(func() {
		<-wait
		_, _ = c.Conn.Write(rest)
	})
	return len(p), nil
}

func (c *valveConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		return n, err
	}
	// What was read beyond the limit is held back: only when it may go on has
	// it been read.
	if _, wait := c.v.take(c, reads, p[:n]); wait != nil {
		select {
		case <-wait:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	return n, nil
}

func (c *valveConn) Close() error {
	c.closing.Do(func() {
		close(c.closed)
		go func() {
			c.late.Wait()
			_ = c.Conn.Close()
		}()
	})
	return nil
}
