package redistest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// eachProxy runs fn on a proxy before an embedded server and before every installed one, in both versions of
// the protocol. The client doesn't retry and has one connection, on which the opening exchange is over.
func eachProxy(t *testing.T, fn func(t *testing.T, p *Proxy, rdb *redis.Client, opt func(*redis.Options))) {
	EachSingle(t, func(t *testing.T, target Target) {
		for _, resp := range []int{2, 3} {
			t.Run(fmt.Sprintf("resp%d", resp), func(t *testing.T) {
				NoLeaks(t)
				p := NewProxy(t, target.Addr())
				opt := func(o *redis.Options) {
					o.Protocol, o.PoolSize, o.MaxRetries, o.DialerRetries = resp, 1, -1, 1
					o.ReadTimeout = 5 * time.Second
				}
				rdb := p.Client(opt)
				WantErr(t, rdb.Ping(t.Context()).Err())
				fn(t, p, rdb, opt)
			})
		}
	})
}

// With one connection and one command the bytes are the same each time, so
// every place in the exchange can be the last one.
func TestProxyCutsAtAnyByte(t *testing.T) {
	eachProxy(t, func(t *testing.T, p *Proxy, rdb *redis.Client, _ func(*redis.Options)) {
		key := Name(t)
		request := len(fmt.Sprintf("*2\r\n$4\r\nincr\r\n$%d\r\n%s\r\n", len(key), key))
		reply := len(":1\r\n")
		ran := 0
		try := func(dir Direction, n int, runs bool) {
			WantErr(t, rdb.Ping(t.Context()).Err())
			fault := p.CutAfter(dir, int64(n))
			err := rdb.Incr(t.Context(), key).Err()
			fault.Wait()
			Require(t, dir == ToClient && n == reply, (err == nil), "cut after %d bytes (direction %d): %v", n, dir, err)
			if runs {
				ran++
			}
			// A request that arrived just before the connection was closed may still be running.
			Eventually(t, fmt.Sprintf("a run cut after %d bytes (direction %d)", n, dir), func() bool {
				got, err := rdb.Get(t.Context(), key).Int()
				CheckNow(t, (err == nil || errors.Is(err, redis.Nil)) && got <= ran,
					"cut after %d bytes (direction %d): %d run, %v", n, dir, got, err)
				return got == ran
			})
		}
		for n := range request + 1 {
			try(ToServer, n, n == request)
		}
		for n := range reply + 1 {
			try(ToClient, n, true)
		}
	})
}

// impatient makes a client that soon gives up to wait for a reply, once its connection
// is open: the opening exchange, and to send, have all the time that a busy machine needs.
func impatient(t *testing.T, p *Proxy, opt func(*redis.Options)) *redis.Client {
	t.Helper()
	rdb := p.Client(opt)
	WantErr(t, rdb.Ping(t.Context()).Err())
	hasty := rdb.WithTimeout(10 * time.Millisecond)
	hasty.Options().WriteTimeout = time.Minute // the options are this clone's own
	return hasty
}
