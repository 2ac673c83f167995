// Package lease is what the three packages have in common: it enters, waits,
// holds, renews and gives back. A Manager does so for one handle; a Lease is one
// thing held.
//
// Locks are taken in one order: the loop's, then a lease's, then the manager's.
// So the loop is called only while holding neither of the others.
package lease

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/inbox"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/renew"
)

// The bounds that the packages' Configs share.
const (
	DefaultTTL = 30 * time.Second
	MinTTL     = 100 * time.Millisecond
)

// Config is what the packages' Configs come to.
type Config struct {
	Package    string // for errors
	Family     keys.Family
	Fenced     bool          // what is held has a fencing token
	Flight     bool          // what is held is the right to load a cached value
	TTL        time.Duration // 0 = DefaultTTL
	MaxHold    time.Duration // 0 = no bound
	MaxWaiters int           // 0 = no bound
}

// Manager is one handle: its id, its leases and its waiters.
type Manager struct {
	cfg    Config
	eng    *engine.Engine
	handle string // 128 random bits
	seq    atomic.Uint64
	loop   *renew.Loop
	inbox  *inbox.Inbox
	clock  clock
	asking atomic.Bool // for the clock, since the last reply is old

	closing chan struct{}

	mu      sync.Mutex
	closed  bool
	running int        // acquires, and calls that may outlast them
	idle    *sync.Cond // none is running
	leases  map[*Lease]struct{}
	waiters map[uint64]*waiter // by sequence number
	groups  map[string]*group  // waiters in the queue, by holders key
	missed  time.Time          // when grants may last have been lost on their way
	known   map[string]*engine.Resource
	bound   bound
}

// New checks cfg, with extra, the errors that the package found in its own
// fields, and makes a Manager. It sends nothing.
func New(rdb redis.UniversalClient, cfg Config, extra ...error) (*Manager, error) {
	errs := append(cfg.Family.Check(), extra...)
	eng, err := engine.New(rdb)
	if err != nil {
		errs = append(errs, err)
	}
	if cfg.TTL == 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.TTL < MinTTL {
		errs = append(errs, keys.Bad("TTL", "is %v; want at least %v, or 0 for %v", cfg.TTL, MinTTL, DefaultTTL))
	}
	if cfg.MaxHold < 0 {
		errs = append(errs, keys.Bad("MaxHold", "is %v; want 0 (no bound) or more", cfg.MaxHold))
	}
	if cfg.MaxWaiters < 0 {
		errs = append(errs, keys.Bad("MaxWaiters", "is %d; want 0 (no bound) or more", cfg.MaxWaiters))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("leasehold: %s: bad configuration: %w", cfg.Package, errors.Join(errs...))
	}
	if cfg.MaxHold > 0 {
		// A dead holder, who cannot give back at MaxHold, is over by then too.
		cfg.TTL = max(MinTTL, within(cfg.TTL, cfg.MaxHold))
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	m := &Manager{
		cfg:     cfg,
		eng:     eng,
		handle:  base64.RawURLEncoding.EncodeToString(id),
		closing: make(chan struct{}),
		leases:  map[*Lease]struct{}{},
		waiters: map[uint64]*waiter{},
		groups:  map[string]*group{},
		known:   map[string]*engine.Resource{},
	}
	m.idle = sync.NewCond(&m.mu)
	m.loop = renew.New(eng.Send, eng.SendInParts)
	m.inbox = inbox.New(
		func(ctx context.Context) *redis.PubSub { return eng.Subscribe(ctx, cfg.Family.Inbox(m.handle)) },
		m.message, m.askAll)
	return m, nil
}

// Engine is what the manager sends with.
func (m *Manager) Engine() *engine.Engine { return m.eng }

// Stop gives back all leases and ends all waits, and waits for nothing. Close is
// still to be called, when nobody uses the leases any more.
func (m *Manager) Stop() {
	m.mu.Lock()
	first := !m.closed
	m.closed = true
	var held []*Lease
	for l := range m.leases {
		held = append(held, l)
	}
	m.mu.Unlock()
	if first {
		close(m.closing)
	}
	for _, l := range held {
		l.abandon(leasehold.ErrClosed)
	}
}

// Close gives back all leases, ends all waits, and returns when nothing is left
// running, or with an error when ctx ends before; what is left then goes on by
// itself and ends with the leases' terms.
func (m *Manager) Close(ctx context.Context) error {
	m.Stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// First those who may still leave something to give back.
		m.mu.Lock()
		for m.running > 0 {
			m.idle.Wait()
		}
		m.mu.Unlock()
		m.inbox.Close()
		m.loop.Close()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return m.fail("close", keys.Escape(m.cfg.Family.Name), ctx.Err(), leasehold.ErrUnavailable)
	}
}

// begin counts an operation in, so that Close waits for it. False: closed.
func (m *Manager) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.running++
	return true
}

// count counts in what goes on though the handle is closed.
func (m *Manager) count() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running++
}

// done counts one out.
func (m *Manager) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running--; m.running == 0 {
		m.idle.Broadcast()
	}
}

// spawn runs a call that its caller may not wait for.
func (m *Manager) spawn(call func()) {
	m.count()
	go func() {
		defer m.done()
		call()
	}()
}

// knownKeys bounds the keys whose names in Redis a handle remembers.
const knownKeys = 256

// resource names the keys of key in Redis, which takes ten allocations: those of
// the last keys are kept.
func (m *Manager) resource(key string) (*engine.Resource, error) {
	m.mu.Lock()
	r := m.known[key]
	m.mu.Unlock()
	if r != nil {
		return r, nil
	}
	named, err := m.cfg.Family.Resource(key)
	if err != nil {
		return nil, err
	}
	if m.cfg.Flight {
		r = engine.NewFlight(named)
	} else {
		r = engine.NewResource(named, m.cfg.Fenced)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= knownKeys {
		clear(m.known)
	}
	m.known[strings.Clone(key)] = r
	return r, nil
}
