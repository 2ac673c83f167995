package singleflight

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/codec"
	"github.com/leasehold-go/leasehold/internal/cycles"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/near"
	"github.com/leasehold-go/leasehold/internal/permits"
)

const pkg = "singleflight"

// Group is a handle on a family of cached values, one for each key. It is safe for concurrent
// use. Make one handle per process and family. It has goroutines and a subscription only while
// something is loaded or waited for.
type Group[T any] struct {
	cfg       Config[T]
	family    keys.Family
	rdb       redis.UniversalClient
	clientID  any // names rdb in the graph of loads
	manager   *lease.Manager
	permits   *lease.Manager // of MaxLoads; nil: no bound
	permitKey string         // names the permits in Redis
	slots     chan struct{}  // one is taken for each loader of this process that runs within MaxLoads

	ownCode       bool           // a Codec or methods of T decode values
	sentinels     []sentinel     // those of Config.Errors
	isString      bool           // T is string, and there is no Codec
	invalidatedAt *invalidatedAt // nil: the client caches nothing by itself
	line          *near.Line     // how processes with copies in memory reach the handle
	near          *near.Cache    // nil: the handle keeps no copies
	counts        counters
	called        atomic.Int64 // how many loaders were called; raised with mu held
	running       atomic.Int64 // how many of them have not returned

	closed atomic.Bool // set with mu held; a hit reads it without mu
	over   atomic.Bool // a Close has returned nil: nothing is left

	// mu guards the fields below, and the fields of flights, loads and requests that say so.
	// It also ensures that once closed is set, only goroutines that are counted in active add
	// to it. Nothing is sent while it is held. The only locks taken while it is held are
	// graph.mu and those of contexts that are cancelled.
	mu                 sync.Mutex
	flights            map[string]*flight[T]   // the flights that requests may join, by key
	localFlights       map[string]*flight[T]   // the same for flights that load without Redis
	freed              []*flight[T]            // local flights that are about to start
	live               map[*flight[T]]struct{} // all flights that may have requests to answer
	refreshPausedUntil map[string]time.Time    // when a refresh may be offered again, by key
	sweepPauses        time.Time               // when those that are over are looked for
	active             sync.WaitGroup          // flights, loads and calls under way
}

// New checks cfg and returns a handle. Its error names every bad field, with its value and its
// bound. New sends nothing. The handle needs no Close if nothing is under way. The caller
// keeps rdb, and closes it after the handle.
//
// New refuses a Cluster client that reads from replicas, because a replica could return a
// value that an Invalidate has already dropped. Without a Codec it also refuses a T whose type
// shows that it cannot be encoded and decoded, such as an interface, or a struct with a name and an
// embedded time.Time, of which the time alone would be stored. rdb may be wrapped: New finds a
// client that is embedded in another type or that a method Unwrap returns.
func New[T any](rdb redis.UniversalClient, cfg Config[T]) (*Group[T], error) {
	cfg = cfg.withDefaults()
	family := keys.Family{Prefix: cfg.Prefix, Kind: keys.Flight, Name: cfg.Name, Hash: cfg.HashKeys}
	errs := cfg.check()
	sentinels, problems := readSentinels(cfg.Errors)
	errs = append(errs, problems...)
	if c, err := call.NewClient(rdb); err == nil {
		if c.ReadsFromReplicas() {
			errs = append(errs, keys.Bad("rdb", "reads from replicas (ReadOnly, RouteByLatency or RouteRandomly); want a client that reads from primaries"))
		}
		if cfg.NearFor != 0 && c.CachesLocally() {
			errs = append(errs, keys.Bad("NearFor", "is %v on a client with client-side caching, which may return old values; want 0, or a client without it", cfg.NearFor))
		}
	}
	ttl := max(cfg.LeaseTTL, lease.MinTTL)
	m, err := lease.New(rdb, lease.Config{Package: pkg, Family: family, Protocol: loads.Family{Family: family, Schema: cfg.Schema}, TTL: ttl, Observer: cfg.Observer, Logger: cfg.Logger, OwnEvents: true, FailsFast: true, Label: cfg.Label}, errs...)
	if err != nil {
		return nil, err
	}
	g := &Group[T]{
		cfg: cfg, family: family, rdb: rdb, clientID: clientID(rdb), manager: m,
		ownCode: cfg.Codec != nil || !isRaw[T]() && codec.RunsMethods(reflect.TypeFor[T]()), sentinels: sentinels,
		flights:            map[string]*flight[T]{},
		localFlights:       map[string]*flight[T]{},
		live:               map[*flight[T]]struct{}{},
		refreshPausedUntil: map[string]time.Time{},
	}
	_, isString := any(new(T)).(*string)
	g.isString = isString && cfg.Codec == nil
	g.openNear()
	if m.Client().MayCacheLocally() {
		g.invalidatedAt = newInvalidatedAt(g.kept(cfg.TTL + time.Duration(cfg.Jitter*float64(cfg.TTL))))
	}
	if cfg.MaxLoads > 0 {
		family.Whole, family.Hash = true, false
		g.permits, err = lease.New(rdb, lease.Config{Package: pkg, Family: family, Protocol: permits.Family{Family: family}, TTL: ttl, Observer: cfg.Observer, Label: cfg.Label, Shares: m})
		if err != nil {
			return nil, err
		}
		all, err := g.permits.Resource("")
		if err != nil {
			return nil, err
		}
		g.permitKey, g.slots = all.FirstKey(), make(chan struct{}, cfg.MaxLoads)
	}
	return g, nil
}

// Shutdown is [Group.Close] for deploys: the loads that run in this process finish first. Their
// callers get the results, and so do the processes that wait for them. New calls, and calls that
// wait for another process or for a permit of MaxLoads, get leasehold.ErrClosed at once; so does
// a loader that uses the group. Then Shutdown closes the handle. If ctx ends first, it closes
// the handle as Close does, and returns an error that matches ctx's.
func (g *Group[T]) Shutdown(ctx context.Context) error {
	call.NeedCtx(ctx)
	if g.over.Load() {
		return nil
	}
	g.mu.Lock()
	g.end(func(f *flight[T]) bool { return f.load == nil })
	g.manager.Refuse()
	if g.permits != nil {
		g.permits.Refuse()
	}
	err := g.awaitIdle(ctx, "shutdown")
	return cmp.Or(g.Close(ctx), err)
}

// Close ends all waits with leasehold.ErrClosed and cancels the ctx of the loads that run. It
// gives their leases to the processes that wait for them. Close returns when the loaders have
// returned and Redis has confirmed, or the leases have expired. If ctx ends first, Close
// returns ctx's error, joined with leasehold.ErrUnavailable unless a loader still runs, and the
// rest ends by itself. A second Close does no harm. Close does not close the client.
func (g *Group[T]) Close(ctx context.Context) error {
	call.NeedCtx(ctx)
	if g.over.Load() {
		return nil
	}
	g.mu.Lock()
	for f := range g.live {
		if f.load != nil && !f.leased {
			f.load.endFor(f, leasehold.ErrClosed)
		}
	}
	g.end(func(*flight[T]) bool { return true })
	g.manager.Stop()
	if g.permits != nil {
		g.permits.Stop()
	}
	if err := g.awaitIdle(ctx, "close"); err != nil {
		return err
	}
	var left error
	read := g.near.Close(ctx)
	if !g.line.Close(ctx) || !read {
		left = call.Fail(pkg, "close", keys.Escape(g.cfg.Name), ctx.Err(), leasehold.ErrUnavailable, errUnderWay)
	}
	err := g.manager.Close(ctx)
	if g.permits != nil {
		err = cmp.Or(err, g.permits.Close(ctx))
	}
	if err = cmp.Or(err, left); err == nil {
		g.over.Store(true)
	}
	return err
}

// end refuses new calls, and ends the waits of the flights that it is to end. Called with the
// lock, which it releases.
func (g *Group[T]) end(which func(f *flight[T]) bool) {
	g.closed.Store(true)
	var open []*request[T]
	for f := range g.live {
		if which(f) {
			open = append(open, f.takeRequests()...)
			f.cancel()
		}
	}
	g.mu.Unlock()
	answer(open, outcome[T]{errs: []error{leasehold.ErrClosed}})
}

// awaitIdle waits until nothing is under way. The handle is closed, so nothing begins any more.
func (g *Group[T]) awaitIdle(ctx context.Context, op string) error {
	idle := make(chan struct{})
	go func() { g.active.Wait(); close(idle) }()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		if g.running.Load() == 0 {
			return call.Fail(pkg, op, keys.Escape(g.cfg.Name), ctx.Err(), leasehold.ErrUnavailable, errUnderWay)
		}
		return call.Fail(pkg, op, keys.Escape(g.cfg.Name), ctx.Err(), errors.New("a loader has not returned yet"))
	}
}

// target is a key together with its other names.
type target struct {
	keys.Resource
	key    string // as the caller passed it
	schema uint32
	value  string // the name of the value in Redis
}

func (t target) failure() string { return loads.Part(t.Resource, "failure", t.schema) }
func (t target) landed() string  { return loads.Part(t.Resource, "landed", t.schema) }

// target returns the names of key. It refuses a bad key before anything is sent.
func (g *Group[T]) target(op, key string) (target, error) {
	r, err := g.family.Resource(key)
	if err != nil {
		return target{}, call.Fail(pkg, op, keys.Escape(g.cfg.Name), err)
	}
	return target{Resource: r, key: key, schema: g.cfg.Schema, value: loads.Part(r, "value", g.cfg.Schema)}, nil
}

// loadedKey names the cached value of t in the graph of loads.
func (g *Group[T]) loadedKey(t target) cycles.Key {
	return cycles.Key{Client: g.clientID, Value: t.value}
}

// clientID returns a comparable value that is the same for handles with the same client, also if a
// type wraps it. Each handle on a type that hides its client, and cannot be compared, gets one of its own.
func clientID(rdb redis.UniversalClient) any {
	layers, _ := call.Layers(rdb)
	if n := len(layers); n > 0 && reflect.ValueOf(layers[n-1]).Comparable() {
		return layers[n-1]
	}
	return new(byte)
}
