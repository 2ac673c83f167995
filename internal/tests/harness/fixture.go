// Package harness is what the tests of all three packages share: a fixture on each kind of server, a wire
// that can be cut, and how to wait for something. Only tests import it. It
// stands on internal/redistest, which has the servers and knows nothing of what is tested.
package harness

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The kinds of resource, as Redis keys name them.
const (
	Permits = "sem"
	Locks   = "mtx"
	Guards  = "grd"
	Loads   = "flt"
)

// Fixture is one family on one target, and a client that looks at what is in Redis.
type Fixture struct {
	*testing.T
	Connect func(w *Wire) redis.UniversalClient // makes a client over w, without its hook
	RDB     redis.UniversalClient
	Addr    string // of the one server; "" where it is not one
	Kind    string // of the family
	Family  string
	Server  *miniredis.Miniredis // in a bubble
}

// Each runs fn on every target, all at the same time.
func Each(t *testing.T, kind string, fn func(f *Fixture)) {
	t.Parallel()
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		fn(New(t, kind, target))
	})
}

// Some runs fn on an embedded server, one server and one Cluster: for what depends on the
// client alone, or takes long.
func Some(t *testing.T, kind string, fn func(f *Fixture)) {
	t.Parallel()
	redistest.Some(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		fn(New(t, kind, target))
	})
}

// Single is Some without the Cluster.
func Single(t *testing.T, kind string, fn func(f *Fixture)) {
	t.Parallel()
	redistest.SomeSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		fn(New(t, kind, target))
	})
}

// New makes a fixture of a family that no other test uses.
func New(t *testing.T, kind string, target redistest.Target) *Fixture {
	StrictOnly(t, kind)
	f := &Fixture{T: t, RDB: target.Admin(t), Kind: kind, Family: redistest.Name(t)}
	f.Connect = func(w *Wire) redis.UniversalClient {
		return target.Client(t, func(o *redis.UniversalOptions) { o.Dialer = w.Dialer(o.Dialer) })
	}
	switch target.Kind {
	case redistest.KindMini, redistest.KindSingle:
		f.Addr = target.Addr()
	}
	return f
}

// NewOn is New for a server of the test's own.
func NewOn(t *testing.T, kind string, rdb redis.UniversalClient) *Fixture {
	return &Fixture{T: t, RDB: rdb, Kind: kind, Family: redistest.Name(t)}
}

// Bubble runs fn on an embedded server in a synctest bubble, where time passes only when everybody waits: for what
// takes long or must be exact. synctest.Wait there says that all that was begun has come as far as it can.
func Bubble(t *testing.T, kind string, fn func(f *Fixture)) {
	t.Helper()
	StrictOnly(t, kind)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() {
			if t.Failed() {
				time.Sleep(time.Minute) // what stopped the test half-way left things running
			}
		})
		server, client := redistest.Bubble(t)
		f := &Fixture{T: t, RDB: client(), Kind: kind, Family: redistest.Name(t), Server: server}
		f.Connect = func(w *Wire) redis.UniversalClient {
			return client(func(o *redis.Options) { o.Dialer = w.Dialer(o.Dialer) })
		}
		fn(f)
	})
}

// Part is the documented name of one of the Redis keys of key.
func (f *Fixture) Part(key, part string) string { return Part(f.Kind, f.Family, key, part) }

// Part is the documented name of one of the Redis keys of a key of a family.
func Part(kind, family, key, part string) string {
	return fmt.Sprintf("leasehold:%s:{%s:%s}:%s", kind, family, key, part)
}

// Held lists the holders of key whose leases have not expired, with their expiries.
func (f *Fixture) Held(key string) map[string]float64 {
	f.Helper()
	all := redistest.Must(f.RDB.ZRangeWithScores(context.Background(), f.Part(key, "holders"), 0, -1).Result())(f)
	live := map[string]float64{}
	for _, z := range all {
		if z.Score > Now() {
			live[z.Member.(string)] = z.Score
		}
	}
	return live
}

// WantHeld fails the test unless n leases of key are held right now.
func (f *Fixture) WantHeld(key string, n int) {
	f.Helper()
	got := f.Held(key)
	redistest.CheckNow(f, len(got) == n, "%d leases are held, want %d: %v", len(got), n, got)
}

// Now is the server's clock in ms. All targets run on this machine.
func Now() float64 { return float64(time.Now().UnixMilli()) }

// Queued is the number of waiters of key.
func (f *Fixture) Queued(key string) int {
	f.Helper()
	return int(redistest.Must(f.RDB.ZCard(context.Background(), f.Part(key, "queue")).Result())(f))
}

// Subscribed lists the inbox channels of that prefix that somebody listens to: a handle
// does while it knows of a waiter in the queue, and for leases that it has held for a while.
func (f *Fixture) Subscribed(prefix string) (channels []string) {
	f.Helper()
	if _, ok := f.RDB.(*redis.ClusterClient); ok {
		f.OnEach(func(ctx context.Context, node redis.Cmdable) error {
			some, err := node.PubSubShardChannels(ctx, prefix+":???:{*}:inbox:*").Result()
			channels = append(channels, some...)
			return err
		})
		return channels
	}
	f.OnEach(func(ctx context.Context, node redis.Cmdable) error {
		some, err := node.PubSubChannels(ctx, prefix+":inbox:*").Result()
		channels = append(channels, some...)
		return err
	})
	return channels
}

// Keys lists all keys that begin with the family's name, as those of a handle with that Prefix do.
func (f *Fixture) Keys() (all []string) {
	f.Helper()
	f.OnEach(func(ctx context.Context, node redis.Cmdable) error {
		some, err := node.Keys(ctx, f.Family+":*").Result()
		all = append(all, some...)
		return err
	})
	slices.Sort(all)
	return slices.Compact(all) // a Cluster's replicas have them, too
}

// OnEach runs fn on every node, one after the other: of a Cluster the replicas too, whose subscribers only they know.
func (f *Fixture) OnEach(fn func(ctx context.Context, node redis.Cmdable) error) {
	f.Helper()
	cluster, ok := f.RDB.(*redis.ClusterClient)
	if !ok {
		redistest.WantErr(f, fn(context.Background(), f.RDB))
		return
	}
	var mu sync.Mutex
	redistest.WantErr(f, cluster.ForEachShard(context.Background(), func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return fn(ctx, node)
	}))
}

// BreakIdle breaks n idle connections of the pool of a client over w.
func (f *Fixture) BreakIdle(rdb *redis.Client, w *Wire, n int) {
	f.Helper()
	var pool []*redis.Conn
	for range n {
		conn := rdb.Conn()
		redistest.WantErr(f, conn.Ping(f.Context()).Err())
		pool = append(pool, conn)
	}
	for _, conn := range pool {
		_ = conn.Close()
	}
	w.Cut()
	w.Heal()
}

// Within is a ctx that ends after d.
func (f *Fixture) Within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(f.Context(), d)
	f.Cleanup(cancel)
	return ctx
}

// Handle is what each package's New makes, as far as closing goes.
type Handle interface {
	Close(ctx context.Context) error
}

// Close closes a handle, soon.
func Close(tb testing.TB, h Handle) {
	tb.Helper()
	CloseWithin(tb, redistest.Soon, h)
}

// CloseWithin is Close for a handle that holds much, or whose server was away.
func CloseWithin(tb testing.TB, within time.Duration, h Handle) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	redistest.Expect(tb, h.Close(ctx), nil, "close: %v")
}
