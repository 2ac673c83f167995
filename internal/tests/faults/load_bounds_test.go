package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// The documented bounds of the calls, whatever their number, for clients with these timeouts.
const (
	boundsTimeout = time.Second                     // the client's ReadTimeout and WriteTimeout
	lookBound     = 3*time.Second + 2*boundsTimeout // to look a key up
	fetchBound    = 2 * lookBound                   // and as long again for the right to load
	dropBound     = 6 * time.Second                 // of Invalidate and Put
)

func shortTimeouts(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = boundsTimeout, boundsTimeout }

// Packets to connect are dropped, with go-redis's own patience: every call ends within its bound, however many
// callers there are. Under LoadLocally a key that is cached has its value.
func TestBoundsOfCachedValuesWhereDialsAreDropped(t *testing.T) {
	t.Parallel()
	srv := redistest.StartServer(t, redistest.Newest(t))
	for _, callers := range []int{20, 200, 2000} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			p, w := redistest.NewProxy(t, srv.Addr()), &harness.Wire{}
			rdb := p.Client(shortTimeouts, func(o *redis.Options) { o.Dialer = w.Dialer(nil) })
			s := newSite(t, harness.Loads, srv.Client())
			g, local := s.group(rdb), s.group(rdb, loadLocally)
			hit := s.on(t, "hit")
			warmUp(t, g)
			warmUp(t, local)
			redistest.WantErr(t, g.Put(t.Context(), hit.key, "cached"))
			w.HoldDials()
			p.CloseAll()
			b := &boundedCalls{TB: t}
			for i := range callers {
				b.all(g, leasehold.ErrUnavailable, fmt.Sprint("k", i), fmt.Sprint("l", i))
				b.start("do of a hit under LoadLocally", fetchBound, nil, func(ctx context.Context) error {
					_, err := local.Do(ctx, hit.key, loaderOf("loaded"))
					return err
				})
			}
			b.Wait()
			w.Heal()
		})
	}
}

// A node of a Cluster is stopped, with its replica: calls about its keys end within their bounds. Calls about keys of
// other nodes do not wait for it, and a DoMany of keys of all nodes gets what the other nodes have.
func TestBoundsOfCachedValuesWhereANodeIsStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	c := redistest.StartPatientCluster(t, redistest.Newest(t))
	const callers = 200
	s := newSite(t, harness.Loads, c.Client())
	rdb := c.Client(func(o *redis.ClusterOptions) { o.ReadTimeout, o.WriteTimeout = boundsTimeout, boundsTimeout })
	g, local := s.group(rdb), s.group(rdb, loadLocally)
	sickNode := c.NodeFor(s.part("value"))
	var sick, healthy []string
	for i := 0; len(sick) < 2*callers || len(healthy) < 2*callers; i++ {
		key := fmt.Sprint("k", i)
		redistest.WantErr(t, g.Put(t.Context(), key, "cached"))
		if err := local.Invalidate(t.Context(), key+"-free"); err != nil { // each node's clock is known
			t.Fatal(err)
		}
		if c.NodeFor(s.on(t, key).part("value")) == sickNode {
			sick = append(sick, key)
		} else {
			healthy = append(healthy, key)
		}
	}
	t.Run("a first look-up asks the server of its key alone", func(t *testing.T) {
		rdb := c.Client()
		first := s.group(rdb)
		if err := first.Invalidate(t.Context(), "another key"); err != nil { // the topology is known
			t.Fatal(err)
		}
		before := commandsAbout(t, rdb)
		redistest.Must(first.Do(t.Context(), healthy[1], loaderOf("loaded")))(t)
		redistest.Expect(t, commandsAbout(t, rdb)-before, 0, "%d questions for what commands there are: the server that is asked may be a sick one")
	})
	replica := c.ReplicaOf(sickNode)
	replica.Pause()
	defer replica.Resume()
	sickNode.Pause()
	defer sickNode.Resume()
	b := &boundedCalls{TB: t}
	for i := range callers {
		b.all(g, leasehold.ErrUnavailable, sick[i], sick[callers+i])
		b.start("do of a sick key's hit under LoadLocally", fetchBound, nil, func(ctx context.Context) error {
			_, err := local.Do(ctx, sick[i], loaderOf("loaded"))
			return err
		})
		b.start("do of a healthy key", harness.Slack, nil, func(ctx context.Context) error {
			v, err := g.Do(ctx, healthy[i], loaderOf("loaded"))
			return wantCached(v, err)
		})
		b.start("do many of healthy keys", harness.Slack, nil, func(ctx context.Context) error {
			found, err := g.DoMany(ctx, healthy[:10], loadsNothing)
			return wantCached(found[healthy[i%10]], err)
		})
		b.start("invalidate a healthy key", harness.Slack, nil, func(ctx context.Context) error {
			return g.Invalidate(ctx, healthy[callers+i])
		})
		b.start("do many of all keys", fetchBound, leasehold.ErrUnavailable, func(ctx context.Context) error {
			found, err := g.DoMany(ctx, []string{sick[i], healthy[i]}, loadsNothing)
			if wantCached(found[healthy[i]], nil) != nil {
				return fmt.Errorf("the healthy key is missing: %v, %w", found, err)
			}
			return err
		})
	}
	b.Wait()
}

// commandsAbout counts the COMMANDs that the servers have run.
func commandsAbout(t *testing.T, rdb *redis.ClusterClient) int64 {
	var all atomic.Int64
	err := rdb.ForEachShard(t.Context(), func(_ context.Context, node *redis.Client) error {
		all.Add(redistest.Commandstats(t, node)["command"])
		return nil
	})
	redistest.WantErr(t, err)
	return all.Load()
}

// loadsNothing is a loader of many keys that finds none of them.
func loadsNothing(context.Context, []string) (map[string]string, error) { return nil, nil }

func wantCached(v string, err error) error {
	if err == nil && v != "cached" {
		return fmt.Errorf("got %q", v)
	}
	return err
}

// boundedCalls are calls at the same time, each with its bound.
type boundedCalls struct {
	testing.TB
	sync.WaitGroup
	wrong sync.Map // the kinds of which one came to something else
}

// all starts a call of each kind, about two keys.
func (b *boundedCalls) all(g *singleflight.Group[string], want error, key, other string) {
	b.start("do", fetchBound, want, func(ctx context.Context) error {
		_, err := g.Do(ctx, key, loaderOf("loaded"))
		return err
	})
	b.start("do many", fetchBound, want, func(ctx context.Context) error {
		_, err := g.DoMany(ctx, []string{key, other}, loadsNothing)
		return err
	})
	b.start("invalidate", dropBound, want, func(ctx context.Context) error { return g.Invalidate(ctx, other) })
	b.start("put", dropBound, want, func(ctx context.Context) error { return g.Put(ctx, other, "put") })
}

// start starts a call that is to come to want, nil for no error, within bound.
func (b *boundedCalls) start(what string, bound time.Duration, want error, call func(ctx context.Context) error) {
	began := time.Now()
	b.Go(func() {
		err := call(context.Background())
		took := time.Since(began)
		if !errors.Is(err, want) {
			_, told := b.wrong.LoadOrStore(what, true)
			redistest.Check(b, told, "%s: %v; want %v", what, err, want)
		}
		redistest.AtMost(b, took, bound+harness.Slack, what+": it took %v")
	})
}
