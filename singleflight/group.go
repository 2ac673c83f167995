package singleflight

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
)

const pkg = "singleflight"

// Group is a handle on a family of cached values, one a key. It is safe for
// concurrent use, and meant to be made once a process and family. It has
// goroutines and a subscription only while something is loaded or waited for.
type Group[T any] struct {
	cfg    Config[T]
	fam    keys.Family
	rdb    redis.UniversalClient
	m      *lease.Manager
	permit *lease.Manager // MaxLoads; nil = no bound
	floors *floors        // nil = the client caches nothing by itself
	counts counters

	closed atomic.Bool // set with the lock

	mu      sync.Mutex
	flights map[string]*flight[T]   // that callers may join, by key
	locals  map[string]*flight[T]   // the same, of those that do without Redis
	live    map[*flight[T]]struct{} // all that have callers to tell
	quiet   map[string]time.Time    // until when not to ask for a refresh, by key
	active  sync.WaitGroup
}

// New checks cfg and makes a handle. Its error names every field that is bad,
// with value and bound. It sends nothing, and needs no Close where nothing is
// under way. rdb stays the caller's, to be closed after the handle. A Cluster
// client that reads from replicas is refused: a value could be read there that
// an Invalidate before has dropped.
func New[T any](rdb redis.UniversalClient, cfg Config[T]) (*Group[T], error) {
	cfg = cfg.withDefaults()
	fam := keys.Family{Prefix: cfg.Prefix, Kind: keys.Flight, Name: cfg.Name, Hash: cfg.HashKeys}
	errs := cfg.check()
	if c, ok := rdb.(*redis.ClusterClient); ok && c != nil && c.Options().ReadOnly {
		errs = append(errs, keys.Bad("rdb", "reads from replicas (ReadOnly, RouteByLatency or RouteRandomly); want a client that reads from primaries"))
	}
	of := lease.Config{Package: pkg, Family: fam, Flight: true, TTL: max(cfg.LeaseTTL, lease.MinTTL)}
	m, err := lease.New(rdb, of, errs...)
	if err != nil {
		return nil, err
	}
	g := &Group[T]{
		cfg: cfg, fam: fam, rdb: rdb, m: m,
		flights: map[string]*flight[T]{},
		locals:  map[string]*flight[T]{},
		live:    map[*flight[T]]struct{}{},
		quiet:   map[string]time.Time{},
	}
	if cachesLocally(rdb) {
		g.floors = newFloors(g.kept(cfg.TTL + time.Duration(cfg.Jitter*float64(cfg.TTL))))
	}
	if cfg.MaxLoads > 0 {
		fam.Whole, fam.Hash = true, false
		g.permit, err = lease.New(rdb, lease.Config{Package: pkg, Family: fam, TTL: of.TTL})
	}
	return g, err
}

// Close ends all waits with leasehold.ErrClosed, cancels the ctx of loads that
// run, gives their leases to the processes that wait for them, and returns when
// the loaders have returned and Redis has confirmed. Where ctx ends before, it
// returns ctx's error; the rest ends by itself. Closing again is fine. It does
// not close the client.
func (g *Group[T]) Close(ctx context.Context) error {
	g.mu.Lock()
	g.closed.Store(true)
	var gone []*caller[T]
	for f := range g.live {
		gone = append(gone, f.takeCallers()...)
		f.cancel()
		if f.load != nil && !f.held {
			f.load.end(f, leasehold.ErrClosed)
		}
	}
	clear(g.flights)
	clear(g.locals)
	g.mu.Unlock()
	tell(gone, outcome[T]{errs: []error{leasehold.ErrClosed}})

	g.m.Stop()
	if g.permit != nil {
		g.permit.Stop()
	}
	ended := make(chan struct{})
	go func() { g.active.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		return engine.Fail(pkg, "close", keys.Escape(g.cfg.Name), ctx.Err(), errLoading)
	}
	err := g.m.Close(ctx)
	if g.permit != nil {
		if e := g.permit.Close(ctx); err == nil {
			err = e
		}
	}
	return err
}

// target is a key, and what it is called elsewhere.
type target struct {
	keys.Resource
	key   string // as its user wrote it
	value string // in Redis
}

func (t target) failure() string { return t.Part("failure") }
func (t target) landed() string  { return t.Part("landed") }

func (g *Group[T]) target(op, key string) (target, error) {
	r, err := g.fam.Resource(key)
	if err != nil {
		return target{}, engine.Fail(pkg, op, keys.Escape(g.cfg.Name), err)
	}
	return target{Resource: r, key: key, value: r.Part("value")}, nil
}
