// Package embedded runs a miniredis inside a test, so that it behaves like a real server both outside and
// inside a testing/synctest bubble. Package leaseholdtest offers it to users, package internal/redistest to
// this module's own tests.
package embedded

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// New makes a server whose keys expire with the clock, as they do on real servers, and closes it at the end
// of the test. It listens nowhere until its Start is called; [Options] reach it in memory.
func New(tb testing.TB) *miniredis.Miniredis {
	tb.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // by default a key's TTL moves only with FastForward
	c, err := m.Dial()
	if err != nil {
		tb.Fatalf("start miniredis: %v", err)
	}
	_ = c.Close() // the server runs from its first Dial on
	tb.Cleanup(m.Close)
	return m
}

// Options are those of a client of m whose connections are in memory. In a bubble a goroutine that waits for
// such a connection counts as idle, so that the bubble's clock moves on. The server's keys, scripts and
// messages follow that clock.
func Options(m *miniredis.Miniredis) *redis.Options {
	server := m.Server() // nil: m is closed
	return &redis.Options{
		// The client looks a host name up, even though the Dialer ignores it, and
		// a lookup stops a bubble's clock.
		Addr: "127.0.0.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if server == nil {
				return nil, syscall.ECONNREFUSED
			}
			near, far := newConn()
			server.ServeConn(far)
			return near, nil
		},
		// With notifications on, the client looks the address up, too.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		// A goroutine that waits for a free connection takes a timer from a pool
		// that all clients of the process share. It would leave a timer of the
		// bubble there, and a later use outside the bubble would panic.
		PoolSize: 1000,
	}
}
