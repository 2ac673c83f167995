// Package embedded runs a miniredis inside a test, so that it behaves like a real server both outside and
// inside a testing/synctest bubble. Package leaseholdtest offers it to users, package internal/redistest to
// this module's own tests.
package embedded

import (
	"context"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
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

// maxClockStep bounds how far the clock of a server with [StepClock] may be behind.
const maxClockStep = 5 * time.Millisecond

// StepClock makes m's clock stand still while a command runs, as a real server's does, and move on before the
// next one. By itself miniredis moves it before each command that a script runs, and visits all its keys each
// time: with some thousand keys a script takes many milliseconds. Here this costs at most about a tenth of
// the time. The clock is behind by at most ten times what a visit takes, and by [maxClockStep].
//
// It must be called before any client connects. m.SetTime, m.SetError and calls that read m's
// keys directly do not work together with it.
func StepClock(m *miniredis.Miniredis) {
	c := &clock{m: m, server: m.Server(), peers: map[*server.Peer]bool{}}
	c.server.SetPreHook(c.beforeCommand)
}

type clock struct {
	m      *miniredis.Miniredis
	server *server.Server

	// running is held while a command runs. Without it, commands that wait for the server's
	// lock would run long after the clock moved for them.
	running sync.Mutex
	last    time.Time // when the clock moved; guarded by running
	step    time.Duration

	mu    sync.Mutex
	peers map[*server.Peer]bool // the connections, and whether a command of theirs runs
}

// beforeCommand runs a command that came over a connection, and returns true. It returns false
// for what it calls itself, and for what a script calls.
func (c *clock) beforeCommand(peer *server.Peer, cmd string, args ...string) (done bool) {
	if !c.begins(peer) {
		return false
	}
	defer c.set(peer, false)
	c.running.Lock()
	defer c.running.Unlock()
	c.advance()
	if waits(cmd) {
		return false
	}
	c.server.Dispatch(peer, append([]string{cmd}, args...))
	return true
}

// begins reports whether a command begins that came over a connection. The first command of a
// connection finds no context yet. What a script calls has the script's context.
func (c *clock) begins(peer *server.Peer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	runs, known := c.peers[peer]
	switch {
	case runs, !known && peer.Ctx != nil:
		return false
	case !known:
		peer.OnDisconnect(func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.peers, peer)
		})
	}
	c.peers[peer] = true
	return true
}

func (c *clock) set(peer *server.Peer, runs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers[peer] = runs
}

// advance moves the clock, unless it has just moved. Called with running.
func (c *clock) advance() {
	now := time.Now()
	if now.Sub(c.last) < c.step {
		return
	}
	c.m.SetTime(now)
	c.m.DB(0) // visits the keys
	c.last, c.step = now, min(10*time.Since(now), maxClockStep)
}

// waits reports whether a command may wait for another one. It must not keep others from running.
func waits(cmd string) bool {
	return strings.HasPrefix(cmd, "B") || strings.HasPrefix(cmd, "XREAD") || cmd == "WAIT"
}
