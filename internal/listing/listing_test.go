package listing_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

const handle = "AbCdEfGh_-0123456789xy"

// find is the one use of a key.
func find(t *testing.T, uses []listing.Use, kind keys.Kind, key string) listing.Use {
	t.Helper()
	for _, u := range uses {
		if u.Kind == kind && u.Key == key {
			return u
		}
	}
	t.Fatalf("%s %q is not listed in %+v", kind, key, uses)
	return listing.Use{}
}

// uses lists the prefix, as a reader does that knows nothing of it.
func uses(t *testing.T, l *listing.Lister) []listing.Use {
	t.Helper()
	all := redistest.Must(l.Resources(t.Context()))(t)
	return redistest.Must(l.Uses(t.Context(), all))(t)
}

// What is held of each kind is counted. The simulation looks at the leases one by one.
func TestWhatThePackagesHoldIsListed(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		rdb, admin, prefix, ctx := target.Client(t), target.Admin(t), redistest.Name(t), t.Context()
		l := listing.New(admin, prefix)
		redistest.Require(t, len(uses(t, l)), 0, "a prefix that nobody uses has %d keys")
		sem := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "exp:orts", Prefix: prefix, Limit: 5}))(t)
		mtx := redistest.Must(mutex.New(rdb, mutex.Config{Name: "jobs", Prefix: prefix}))(t)
		grp := redistest.Must(singleflight.New(rdb, singleflight.Config[string]{Name: "pages", Prefix: prefix, TTL: time.Minute, MaxLoads: 3}))(t)
		permits := redistest.Must(sem.AcquireN(ctx, "acme {1}", 5))(t)
		lock := redistest.Must(mtx.Lock(ctx, "nightly"))(t)
		waitCtx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 2)
		go func() { ended <- redistest.ErrorOf(sem.Acquire(waitCtx, "acme {1}")) }()
		card := func(key string, n int64) func() bool {
			return func() bool { return admin.ZCard(ctx, prefix+key).Val() == n }
		}
		redistest.Eventually(t, "a waiter", card(":sem:{exp%3Aorts:acme %7B1%7D}:queue", 1))
		redistest.WantErr(t, redistest.ErrorOf(grp.Do(ctx, "home", func(context.Context) (string, error) { return "v", nil })))
		admin.Set(ctx, prefix+":grd:{files:f}:value", "x", time.Minute)
		admin.Set(ctx, prefix+":grd:{files:f}:seen", lock.Token(), time.Hour)
		loading, letGo := make(chan struct{}), make(chan struct{})
		go func() {
			ended <- redistest.ErrorOf(grp.Do(ctx, "slow", func(context.Context) (string, error) {
				close(loading)
				<-letGo
				return "v", nil
			}))
		}()
		redistest.Get(t, "the load", loading)
		// The permit of a load is given back after its caller has the result.
		redistest.Eventually(t, "only the slow load to hold a permit", card(":flt:{pages:}:holders", 1))

		some := uses(t, l)
		check := func(kind keys.Kind, key string, ok func(u listing.Use) bool) listing.State {
			u := find(t, some, kind, key)
			redistest.Check(t, ok(u), "%s %q is %+v, %+v", kind, key, u, u.Value)
			return redistest.Must(l.State(ctx, u.Resource, listing.Bounds{}))(t)
		}
		s := check(keys.Semaphore, "acme {1}", func(u listing.Use) bool {
			return u.Family == "exp:orts" && u.InUse == 5 && u.Limit == 5 && !u.Stored &&
				u.Waiting == 1 && u.LongestWait > 0 && u.ExpiresIn > 20*time.Second && !u.Idle()
		})
		redistest.Check(t, s.InUse == 5 && s.Limit == 5 && len(s.Holders) == 1 && s.Holders[0].ID == permits.ID() && s.Holders[0].Permits == 5,
			"its holders are %+v", s)
		redistest.Between(t, s.At.Sub(s.Holders[0].Since), 0, redistest.Soon, "it is said to have been held for %v")
		s = check(keys.Mutex, "nightly", func(u listing.Use) bool { return u.InUse == 1 && u.Limit == 1 && u.Token == lock.Token() })
		redistest.Check(t, len(s.Holders) == 1 && s.Holders[0].Since.UnixMicro() == int64(lock.Token()), "its holder is %+v", s)
		check(keys.Flight, "home", func(u listing.Use) bool {
			return u.Value != nil && u.Value.Known && !u.Value.NotFound && u.Value.FreshFor > 0 && u.Value.Bytes != 0 && u.InUse == 0
		})
		check(keys.Flight, "slow", func(u listing.Use) bool { return u.Value == nil && u.InUse == 1 })
		check(keys.Flight, "", func(u listing.Use) bool { return u.Whole && u.InUse == 1 && u.Limit == 3 && u.Family == "pages" })
		s = check(keys.Guard, "f", func(u listing.Use) bool { return u.Guarded && u.Token == lock.Token() })
		redistest.Check(t, s.Token == lock.Token(), "the guard's state is %+v", s)

		cancel()
		close(letGo)
		for range 2 {
			redistest.Get(t, "an end", ended)
		}
		redistest.WantErr(t, permits.Release())
		redistest.WantErr(t, lock.Unlock())
		for _, closer := range []interface{ Close(context.Context) error }{sem, mtx, grp} {
			redistest.WantErr(t, closer.Close(ctx))
		}
		for _, u := range uses(t, l) {
			redistest.Check(t, (u.Kind != keys.Semaphore || u.Idle()) && (u.Kind != keys.Mutex || u.Idle() && u.Token != 0),
				"after all was given back: %+v", u)
		}
	})
}

// Of each call that it makes, one reply is lost. The client library sends nothing
// again by itself here.
func TestLostRepliesAreAskedForAgain(t *testing.T) {
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		prefix := redistest.Name(t)
		p := redistest.NewProxy(t, target.Addr())
		rdb := p.Client(func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, 100*time.Millisecond })
		fill(t, target.Client(t), prefix+":sem:{n:k}:holders", 20, func(int) time.Time { return time.Now().Add(time.Minute) })
		l := listing.New(rdb, prefix)
		for _, name := range []string{"scan", "time", "zrange", "zcount", "get"} {
			fault := p.EatReply(redistest.Named(name), 1)
			u := find(t, uses(t, l), keys.Semaphore, "k")
			s, err := l.State(t.Context(), u.Resource, listing.Bounds{})
			redistest.CheckNow(t, err == nil && len(s.Holders) == 20 && u.InUse == 20,
				"without a reply to %s: %d holders, %v, %+v", name, len(s.Holders), err, u)
			select {
			case <-fault.Fired():
			default:
				t.Fatalf("no reply to %s was lost", name)
			}
		}
	})
}

// A command that a hook of the client has swallowed says nothing of the key.
func TestSwallowedReadsAreNoAnswer(t *testing.T) {
	server := redistest.Mini(t)
	redistest.Must(server.ZAdd("leasehold:sem:{n:k}:queue", 1, handle+".1.1.30000.5"))(t)
	lister := func(swallowed string) *listing.Lister { // with "…" a pipeline that begins so
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		rdb.AddHook(redistest.Around(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			sent := cmds[0].Name()
			if len(cmds) > 1 {
				sent += "…"
			}
			if sent == swallowed {
				return nil
			}
			return send()
		}))
		return listing.New(rdb, "")
	}
	for kind, hooks := range map[keys.Kind][]string{
		keys.Mutex: {"time", "zrange…"}, keys.Semaphore: {"time", "zrange", "zmscore", "get"}, keys.Flight: {"getrange…"}, keys.Guard: {"get"},
	} {
		for _, hook := range hooks {
			s, err := lister(hook).State(t.Context(), listing.Of("", kind, "n", "k", false), listing.Bounds{})
			redistest.Check(t, err != nil, "%s without %s: %+v", kind, hook, s)
		}
	}
	for key, hook := range map[string]string{"": "hgetall", "k": "hmget"} {
		s, err := lister(hook).State(t.Context(), listing.Of("", keys.Semaphore, "n", key, true), listing.Bounds{})
		redistest.Check(t, err != nil, "a family with a total without %s: %+v", hook, s)
	}
	redistest.Check(t, redistest.ErrorOf(lister("scan").Resources(t.Context())) != nil, "the keys were listed")
	for hook, kind := range map[string]keys.Kind{"zcount…": keys.Semaphore, "zmscore": keys.Semaphore, "get…": keys.Guard} {
		all := redistest.Must(lister(hook).Uses(t.Context(), []listing.Resource{listing.Of("", kind, "n", "k", false)}))(t)
		redistest.Check(t, all[0].Err != nil, "%s without %s: %+v", kind, hook, all[0])
	}
}

// The methods of an error that a hook returns may panic.
func TestErrorThatPanicsIsAnAnswer(t *testing.T) {
	rdb := redistest.MiniClient(t)
	rdb.AddHook(redistest.Around(func(context.Context, []redis.Cmder, func() error) error { return (*net.OpError)(nil) }))
	_, err := listing.New(rdb, "").Resources(t.Context())
	redistest.WantText(t, err, "panicked")
}

// The layout of a family with a total: all its tenants in one set of keys.
func TestTenantsOfAFamilyWithATotalAreListed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		rdb, prefix := target.Client(t), redistest.Name(t)
		ctx, now := t.Context(), time.Now()
		base := prefix + ":sem:{n}:"
		member := func(key string, seq, permits int) string {
			return fmt.Sprintf("%s:%s~h:1.%d.%d.30000.5.1.40", keys.Escape(key), handle, seq, permits)
		}
		ends := float64(now.Add(20 * time.Second).UnixMilli())
		rdb.ZAdd(ctx, base+"holders", redis.Z{Score: ends, Member: member("a:b", 1, 2)},
			redis.Z{Score: ends, Member: member("a:b", 1, 2) + "+2"}, redis.Z{Score: ends, Member: member("c", 2, 1)})
		rdb.ZAdd(ctx, base+"queue", redis.Z{Score: float64(now.Add(-time.Second).UnixMicro()), Member: member("c", 3, 1)})
		rdb.ZAdd(ctx, base+"alive", redis.Z{Score: float64(now.Add(time.Minute).UnixMilli()), Member: member("c", 3, 1)})
		rdb.HSet(ctx, base+"limits", "c", 1, "", 3)
		l := listing.New(rdb, prefix)
		some := uses(t, l)
		u := find(t, some, keys.Semaphore, "")
		redistest.Check(t, u.HasTotal && u.InUse == 3 && u.Limit == 3 && u.Stored && u.Waiting == 1, "the family is %+v", u)
		u = find(t, some, keys.Semaphore, "a:b")
		redistest.Check(t, u.InUse == 2 && u.Limit == 5 && !u.Stored && u.Waiting == 0, "one tenant is %+v", u)
		u = find(t, some, keys.Semaphore, "c")
		redistest.Check(t, u.InUse == 1 && u.Limit == 1 && u.Stored && u.Waiting == 1 && u.LongestWait >= time.Second, "the other is %+v", u)
		s, err := l.State(ctx, listing.Of(prefix, keys.Semaphore, "n", "a:b", true), listing.Bounds{})
		redistest.Check(t, err == nil && len(s.Holders) == 1 && s.Holders[0].Permits == 2 &&
			s.Holders[0].Label == "h:1" && s.Limit == 5 && s.Total == 3 && len(s.Waiters) == 0,
			"a tenant's state is %+v, %v", s, err)
		// Tenants that are asked for are answered, also where nothing is known of them.
		var asked []listing.Resource
		for _, key := range []string{"c", "idle", "idle"} {
			asked = append(asked, listing.Of(prefix, keys.Semaphore, "n", key, true))
		}
		some, err = l.Uses(ctx, asked)
		redistest.CheckNow(t, err == nil && len(some) == 4, "the uses are %+v, %v", some, err)
		u = find(t, some, keys.Semaphore, "idle")
		redistest.Check(t, u.Resource == asked[1] && u.InUse == 0 && u.Waiting == 0 && u.Err == nil, "an idle tenant is %+v", u)
		u = find(t, some, keys.Semaphore, "c")
		redistest.Check(t, u.InUse == 1 && u.Waiting == 1, "a busy tenant is %+v", u)
		// Of a tenant that only waits its requests tell what is not stored.
		rdb.ZAdd(ctx, base+"queue", redis.Z{Score: float64(now.UnixMicro()), Member: member("waits", 4, 1)})
		rdb.ZAdd(ctx, base+"alive", redis.Z{Score: float64(now.Add(time.Minute).UnixMilli()), Member: member("waits", 4, 1)})
		state := func() listing.State {
			return redistest.Must(l.State(ctx, listing.Of(prefix, keys.Semaphore, "n", "waits", true), listing.Bounds{}))(t)
		}
		s = state()
		redistest.Check(t, s.Limit == 5 && s.Total == 3 && !s.Stored, "with a stored total: %+v", s)
		rdb.HDel(ctx, base+"limits", "")
		rdb.HSet(ctx, base+"limits", "waits", 2)
		s = state()
		redistest.Check(t, s.Limit == 2 && s.Total == 40 && s.Stored, "with a stored limit: %+v", s)
		rdb.Set(ctx, prefix+":sem:{wrong}:holders", "text", 0)
		some, err = l.Uses(ctx, []listing.Resource{listing.Of(prefix, keys.Semaphore, "wrong", "idle", true)})
		redistest.Check(t, err == nil && len(some) == 2 && some[0].Err != nil && some[1].Err != nil,
			"the uses of what cannot be read are %+v, %v", some, err)
	})
}

// onTwo is a Cluster client that reads from the second of two servers, as NewFailoverClusterClient makes it. It learns
// of their addresses from servers.
func onTwo(t *testing.T, servers func() (primary, replica string)) *redis.ClusterClient {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ReadOnly: true, ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		primary, replica := servers()
		return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: primary}, {Addr: replica}}}}, nil
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Primaries are asked, also by a client that reads from replicas: one that lags does not know the lease.
func TestPrimariesAreAsked(t *testing.T) {
	x, prefix := redistest.StartReplicated(t, redistest.Newest(t), 1), redistest.Name(t)
	rdb := onTwo(t, func() (string, string) { return x.Primary.Addr(), x.Replicas[0].Addr() })
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: "jobs", Prefix: prefix}))(t)
	defer func() { _ = m.Close(context.Background()) }()
	x.Cut()
	lock := redistest.Must(m.Lock(t.Context(), "k"))(t)
	state := redistest.Must(m.Inspect(t.Context(), "k"))(t)
	redistest.Check(t, state.Held && state.LastToken == lock.Token(), "the state is %+v", state)
	redistest.Expect(t, find(t, uses(t, listing.New(rdb, prefix)), keys.Mutex, "k").InUse, 1, "%d in use")
	redistest.WantErr(t, m.Revoke(t.Context(), "k", lock.ID(), "a test"))
}

// without hides the Cluster client in it, but for what a handle needs to recognise it.
type without struct {
	inside
	all *redis.ClusterClient
}

type inside interface{ redis.UniversalClient }

func (w without) Options() *redis.ClusterOptions { return w.all.Options() }
func (w without) MasterForKey(ctx context.Context, key string) (*redis.Client, error) {
	return w.all.MasterForKey(ctx, key)
}
func (w without) ReloadState(ctx context.Context) { w.all.ReloadState(ctx) }

// A client that cannot be asked for all primaries is asked itself.
func TestClientWithoutListOfPrimaries(t *testing.T) {
	addr := redistest.Mini(t).Addr()
	all := onTwo(t, func() (string, string) { return addr, addr })
	_, err := listing.New(without{all, all}, "").State(t.Context(), listing.Of("", keys.Mutex, "n", "k", false), listing.Bounds{})
	redistest.WantErr(t, err)
}

// A listing that finds no primary learns where it is now.
func TestTheTopologyIsLearntAnew(t *testing.T) {
	addr, looks := redistest.Mini(t).Addr(), atomic.Int32{}
	rdb := onTwo(t, func() (string, string) {
		if looks.Add(1) == 1 {
			return "127.0.0.1:1", addr
		}
		return addr, addr
	})
	_, err := listing.New(rdb, "").State(t.Context(), listing.Of("", keys.Mutex, "n", "k", false), listing.Bounds{})
	redistest.WantErr(t, err)
}

// Two versions of a program that share a cached value each have their own, under one name. Each is listed, and the
// keys that they share are no third one. The handles that may serve a copy from memory are counted, whatever their
// schema; those whose time is over are not.
func TestEachVersionOfACachedValueIsListed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		rdb, prefix := target.Client(t), redistest.Name(t)
		for schema := range uint32(2) {
			g := redistest.Must(singleflight.New(rdb, singleflight.Config[string]{Name: "n", Prefix: prefix, TTL: time.Minute, Schema: schema + 1, NearFor: time.Minute}))(t)
			defer func() { _ = g.Close(context.Background()) }()
			for g.Stats().NearHits == 0 {
				redistest.WantErr(t, redistest.ErrorOf(g.Do(t.Context(), "k", func(context.Context) (string, error) { return "v", nil })))
			}
		}
		over := redis.Z{Score: 1, Member: handle}
		redistest.WantErr(t, rdb.ZAdd(t.Context(), listing.Of(prefix, keys.Flight, "n", "k", false).Part("near"), over).Err())
		l := listing.New(target.Admin(t), prefix)
		all := uses(t, l)
		redistest.CheckNow(t, len(all) == 2, "%d are listed; want 2: %+v", len(all), all)
		for i, u := range all {
			redistest.Check(t, u.Schema == fmt.Sprintf("%08x", i+1) && u.Value != nil, "the use of version %d is %+v", i+1, u)
			s, err := l.State(t.Context(), u.Resource, listing.Bounds{})
			redistest.Check(t, err == nil && s.Near == 2, "its state is %+v, %v; want two handles with a copy", s, err)
		}
	})
}

func TestMain(m *testing.M) { redistest.Main(m) }
