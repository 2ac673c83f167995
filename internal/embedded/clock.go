package embedded

import (
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

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
