package redistest

import (
	"context"
	"net"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Mini starts an embedded server on a TCP port, where keys expire with the
// clock as they do on real servers.
func Mini(tb testing.TB) *miniredis.Miniredis {
	tb.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		tb.Fatalf("start miniredis: %v", err)
	}
	tb.Cleanup(m.Close)
	return m
}

// Bubble makes an embedded server and clients for use inside a testing/synctest
// bubble: connections are in memory, so that waiting for one counts as idle and
// the bubble's clock, which the server's keys, scripts and messages follow,
// moves on. It must be called inside the bubble.
//
// A mod that sets Dialer can put a faulty network in between; it gets a
// connection from the server's Dial.
func Bubble(tb testing.TB) (*miniredis.Miniredis, func(mod ...func(*redis.Options)) *redis.Client) {
	tb.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	tb.Cleanup(m.Close)
	client := func(mod ...func(*redis.Options)) *redis.Client {
		inMemory := func(opt *redis.Options) {
			opt.Dialer = func(context.Context, string, string) (net.Conn, error) { return m.Dial() }
			// Who waits for a connection leaves a timer of the bubble in a pool
			// that all clients of the process share.
			opt.PoolSize = 1000
			// With notifications on, or a host name as address, the client
			// would look the host up, and a lookup stops a bubble's clock.
			opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		}
		return newClient(tb, "127.0.0.1:6379", append([]func(*redis.Options){inMemory}, mod...))
	}
	return m, client
}
