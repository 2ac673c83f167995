// Package quorum holds what the documentation of mutex.NewQuorum promises, as tests on three and
// five servers, and what becomes of it when some of them fail.
package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// A fleet is the servers of a quorum, and a family of locks on them.
type fleet struct {
	*testing.T
	family string
	minis  []*miniredis.Miniredis // embedded servers; nil: real ones
	reals  []*redistest.Server
	// proxies stand before the servers; nil: there are none.
	proxies []*redistest.Proxy
	clocks  []*redistest.Clock // of the servers; nil: they have this machine's

	directs *sync.Map // by server: its client that no proxy disturbs
}

func newFleet(t *testing.T) *fleet {
	return &fleet{T: t, family: redistest.Name(t), directs: &sync.Map{}}
}

// embedded is a fleet of n embedded servers.
func embedded(t *testing.T, n int) *fleet {
	f := newFleet(t)
	for range n {
		f.minis = append(f.minis, redistest.Mini(t))
	}
	return f
}

// each runs fn on n embedded servers, and on n processes of each installed version.
func each(t *testing.T, n int, fn func(f *fleet)) {
	t.Parallel()
	t.Run("mini", func(t *testing.T) {
		t.Parallel()
		fn(embedded(t, n))
	})
	versions := redistest.Installed()
	if len(versions) == 0 {
		t.Run("servers", func(t *testing.T) { redistest.NeedServers(t) })
	}
	for _, v := range versions {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			for range n {
				f.reals = append(f.reals, redistest.StartServer(t, v))
			}
			fn(f)
		})
	}
}

// newest runs fn on n processes of the newest installed version, with a proxy before each.
func newest(t *testing.T, n int, fn func(f *fleet)) { newestWith(t, n, false, fn) }

// newestWith is newest, perhaps with a clock for each server.
func newestWith(t *testing.T, n int, clocks bool, fn func(f *fleet)) {
	t.Parallel()
	v, f := redistest.Newest(t), newFleet(t)
	for i := range n {
		if clocks {
			s, c := redistest.StartWithClock(t, v)
			f.reals, f.clocks = append(f.reals, s), append(f.clocks, c)
		} else {
			f.reals = append(f.reals, redistest.StartServer(t, v))
		}
		f.proxies = append(f.proxies, redistest.NewProxy(t, f.addr(i)))
	}
	fn(f)
}

// jump sets the clock of a server anew, up to 3 s from this machine's.
func (f *fleet) jump(i int, dice *rand.Rand) {
	f.clocks[i].Shift(time.Duration(dice.IntN(6001)-3000) * time.Millisecond)
}

func (f *fleet) size() int { return max(len(f.minis), len(f.reals)) }

func (f *fleet) addr(i int) string {
	if f.minis != nil {
		return f.minis[i].Addr()
	}
	return f.reals[i].Addr()
}

// clients makes a client for each server, through its proxy if there is one.
func (f *fleet) clients() (all []redis.UniversalClient) {
	for i := range f.size() {
		if f.proxies != nil {
			all = append(all, f.proxies[i].Client())
			continue
		}
		all = append(all, f.client(i))
	}
	return all
}

// client makes a client of one server.
func (f *fleet) client(i int) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: f.addr(i)})
	f.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// direct returns a client of one server that no proxy disturbs.
func (f *fleet) direct(i int) *redis.Client {
	if rdb, made := f.directs.Load(i); made {
		return rdb.(*redis.Client)
	}
	rdb := f.client(i)
	f.directs.Store(i, rdb)
	return rdb
}

// open makes a handle with clients of its own.
func (f *fleet) open(mod ...func(*mutex.Config)) *mutex.Mutex {
	f.Helper()
	cfg := mutex.Config{Name: f.family}
	for _, change := range mod {
		change(&cfg)
	}
	m := redistest.Must(mutex.NewQuorum(f.clients(), cfg))(f)
	f.Cleanup(func() { harness.CloseWithin(f, 30*time.Second, m) })
	return m
}

// ttl sets the TTL of a handle.
func ttl(d time.Duration) func(*mutex.Config) { return func(c *mutex.Config) { c.TTL = d } }

// part is the documented name of one of the Redis keys of key.
func (f *fleet) part(key, part string) string {
	return fmt.Sprintf("leasehold:qmx:{%s:%s}:%s", f.family, key, part)
}

// born is the name of the Redis key that tells whether a server may vote.
func (f *fleet) born() string { return fmt.Sprintf("leasehold:qmx:{%s}:born", f.family) }

func (f *fleet) lock(m *mutex.Mutex, key string) *mutex.Lock {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	f.Cleanup(cancel)
	return redistest.Must(m.Lock(ctx, key))(f)
}

func (f *fleet) unlock(l *mutex.Lock) {
	f.Helper()
	redistest.WantErr(f, l.Unlock())
}

// locking calls Lock in another goroutine.
func (f *fleet) locking(ctx context.Context, m *mutex.Mutex, key string) *harness.Call[*mutex.Lock] {
	return harness.Start(f, func() (*mutex.Lock, error) { return m.Lock(ctx, key) })
}

// turn has a lock taken and given back in another goroutine.
func (f *fleet) turn(m *mutex.Mutex, key string) *harness.Call[struct{}] {
	return harness.Begin(f, func() error {
		l, err := m.Lock(f.Context(), key)
		if err == nil {
			err = l.Unlock()
		}
		return err
	})
}

// restartEmpty restarts a server without anything that it had stored.
func (f *fleet) restartEmpty(i int) {
	f.reals[i].Kill()
	_ = os.Remove(filepath.Join(f.reals[i].Dir(), "dump.rdb"))
	f.reals[i].Restart()
}

// votes reports whether a server votes for the family, and knows that it may.
func (f *fleet) votes(i int) bool {
	rdb := f.direct(i)
	born := rdb.HGetAll(context.Background(), f.born()).Val()
	return born["votes"] == "1" && (f.reals == nil || strings.Contains(rdb.Info(context.Background(), "server").Val(), born["run"]))
}

// begin has the family begin on all servers.
func (f *fleet) begin(m *mutex.Mutex) {
	f.Helper()
	f.unlock(f.lock(m, "begin"))
	for i := range f.size() {
		for !f.votes(i) {
			redistest.CheckNow(f, f.Context().Err() == nil, "the family does not begin")
			time.Sleep(time.Millisecond)
		}
	}
}

// distant returns clients of three embedded servers. A round trip to one takes trip.
func distant(f *harness.Fixture, trip time.Duration) (rdbs []redis.UniversalClient) {
	for range 3 {
		_, client := redistest.Bubble(f)
		rdb := client()
		rdb.AddHook(redistest.Around(func(_ context.Context, _ []redis.Cmder, send func() error) error {
			time.Sleep(trip / 2)
			defer time.Sleep(trip / 2)
			return send()
		}))
		rdbs = append(rdbs, rdb)
	}
	return rdbs
}

// A refusal is an error that a server answers with.
type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}
