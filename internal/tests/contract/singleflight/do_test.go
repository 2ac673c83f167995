package singleflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// plain is a Config without what is random.
func plain(c *singleflight.Config[string]) { c.Jitter = -1 }

func TestOneLoadInTheFleet(t *testing.T) {
	each(t, func(f *fixture) {
		o := newOrigin(f)
		var all []*pending[string]
		for range 3 {
			g, _ := f.open()
			for range 20 {
				all = append(all, fetch(f, f.Context(), g, "k", o.load))
			}
		}
		l := o.next(f)
		redistest.Eventually(f, "two processes to wait", func() bool { return f.Queued("k") == 2 })
		l.returns("v")
		sources := map[singleflight.Source]int{}
		for _, p := range all {
			r := p.Got()
			redistest.CheckNow(f, r.Value == "v", "%+v", r)
			sources[r.Source]++
		}
		n := o.loads.Load()
		redistest.CheckNow(f, n == 1 && sources[singleflight.Loaded] == 1 && sources[singleflight.Stale] == 0, "%d loads, sources %v", n, sources)
	})
}

// Each Source, with the age that comes with it. Entries bear the server's time, and ages are told by it: whatever the
// clocks of the processes say.
func TestAgesAreByTheServersClock(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		subBubble(t, off.String(), func(f *fixture) {
			pass := func(d time.Duration) {
				time.Sleep(d)
				f.Server.SetTime(time.Now().Add(off))
			}
			pass(0)
			mod := func(c *singleflight.Config[string]) { c.TTL, c.StaleFor, c.Jitter = 10*time.Second, time.Minute, -1 }
			g, other, _ := f.two(mod)
			o := newOrigin(f)
			want := func(p *pending[string], value string, source singleflight.Source, age time.Duration) {
				f.Helper()
				r := p.Got()
				redistest.CheckNow(f, r.Value == value && r.Source == source && r.Age == age, "%+v, want %q, %v, %v old", r, value, source, age)
			}
			first, l := begin(f, f.Context(), g, "k", o, o.load)
			joins, waits := fetch(f, f.Context(), g, "k", never(f)), fetch(f, f.Context(), other, "k", never(f))
			pass(time.Second)
			l.returns("1")
			want(first, "1", singleflight.Loaded, 0)
			want(joins, "1", singleflight.Shared, 0)
			want(waits, "1", singleflight.Shared, 0)
			e, err := envelope.Decode(f.RDB.Get(f.Context(), f.Part("k", "value")).Val())
			redistest.Check(f, err == nil && e.Published == time.Now().Add(off).UnixMicro(), "published at %v, %v", time.UnixMicro(e.Published), err)
			pass(4 * time.Second)
			want(fetch(f, f.Context(), mustOpen(f, mod), "k", never(f)), "1", singleflight.Cached, 4*time.Second)
			want(fetch(f, f.Context(), other, "k", never(f)), "1", singleflight.Cached, 4*time.Second)
			pass(6 * time.Second) // by now its TTL is over
			want(fetch(f, f.Context(), other, "k", o.load), "1", singleflight.Stale, 10*time.Second)
			pass(time.Second)
			want(fetch(f, f.Context(), g, "k", never(f)), "1", singleflight.Stale, 11*time.Second)
			o.next(f).returns("2")
			time.Sleep(time.Second) // the age is by the last reply, and the time since
			want(fetch(f, f.Context(), g, "k", never(f)), "2", singleflight.Cached, time.Second)
			redistest.Expect(f, g.Stats(), (singleflight.Stats{Hits: 1, Stale: 1, Loaded: 1, Shared: 1, Loads: 1}), "%+v")
			redistest.Expect(f, other.Stats(), (singleflight.Stats{Hits: 1, Stale: 1, Shared: 1, Loads: 1, Refreshes: 1}), "%+v")
		})
	}
}

// What a caller does to its value shows in no other's, nor in the cache.
func TestEachCallerGetsItsOwnValue(t *testing.T) {
	some(t, func(f *fixture) {
		type value = map[string][]int
		ownValues(f, "map", func() value { return value{"a": {1, 2, 3}} }, func(v value) { v["a"][0], v["b"] = 99, nil })
		ownValues(f, "bytes", func() []byte { return []byte("value") }, func(v []byte) { clear(v) })
	})
}

func ownValues[T any](f *fixture, key string, fresh func() T, spoil func(T)) {
	g, _ := openOf[T](f)
	other, _ := openOf[T](f)
	began, end := make(chan struct{}), make(chan struct{})
	load := func(context.Context) (T, error) {
		close(began)
		<-end
		return fresh(), nil
	}
	all := []*pending[T]{fetch(f, f.Context(), g, key, load)}
	redistest.Get(f, "the load", began)
	for range 3 {
		all = append(all, fetch(f, f.Context(), g, key, load), fetch(f, f.Context(), other, key, load))
	}
	redistest.Eventually(f, "the other process", func() bool { return inspect(f, g, key).Waiting == 1 })
	close(end)
	redistest.Get(f, "a value", all[0].Done)
	for range 3 {
		all = append(all, fetch(f, f.Context(), g, key, load))
	}
	for _, p := range all {
		r := p.Got()
		redistest.CheckNow(f, reflect.DeepEqual(r.Value, fresh()), "a caller got another's %v (%v)", r.Value, r.Source)
		spoil(r.Value)
	}
}

// batches is an origin of several keys: it notes what it was called for.
type batches struct {
	mu    sync.Mutex
	calls [][]string
	began chan []string
	gate  chan struct{} // each call waits there, if there is one
	value func(key string) (string, bool)
}

func newBatches() *batches {
	return &batches{began: make(chan []string, 100), value: func(key string) (string, bool) { return strings.ToUpper(key), true }}
}

func (b *batches) load(ctx context.Context, keys []string) (map[string]string, error) {
	b.mu.Lock()
	b.calls = append(b.calls, slices.Clone(keys))
	b.mu.Unlock()
	b.began <- keys
	if b.gate != nil {
		select {
		case <-b.gate:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	all := map[string]string{}
	for _, k := range keys {
		if v, ok := b.value(k); ok {
			all[k] = v
		}
	}
	return all, nil
}

func (b *batches) wantCalls(t testing.TB, want ...[]string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	redistest.CheckNow(t, fmt.Sprint(b.calls) == fmt.Sprint(want), "the loader was called for %v, want %v", b.calls, want)
}

// many is a DoMany under way.
type many struct {
	*harness.Call[map[string]string]
	t testing.TB
}

func doMany(t testing.TB, ctx context.Context, g *singleflight.Group[string], keys []string, b *batches) *many {
	return &many{harness.Start(t, func() (map[string]string, error) { return g.DoMany(ctx, keys, b.load) }), t}
}

// got is the error that the DoMany ends with, soon; want is pairs of the keys and values that it found.
func (m *many) got(want ...string) error {
	m.t.Helper()
	redistest.Get(m.t, "the values", m.Done)
	found := map[string]string{}
	for i := 0; i < len(want); i += 2 {
		found[want[i]] = want[i+1]
	}
	redistest.CheckNow(m.t, maps.Equal(m.Value, found) && m.Value != nil, "found %v (%v), want %v", m.Value, m.Err, found)
	return m.Err
}

// What is cached is served, the rest is loaded in one call, in the caller's order; duplicates count once.
func TestDoManyLoadsWhatIsMissing(t *testing.T) {
	each(t, func(f *fixture) {
		g, _ := f.open()
		b := newBatches()
		fetch(f, f.Context(), g, "c", gives("cached")).Got()
		keys := []string{"z", "a", "c", "z", "m", "a", "b"}
		redistest.WantErr(f, doMany(f, f.Context(), g, keys, b).got("z", "Z", "a", "A", "c", "cached", "m", "M", "b", "B"))
		b.wantCalls(f, []string{"z", "a", "m", "b"})
		redistest.WantErr(f, doMany(f, f.Context(), g, keys, b).got("z", "Z", "a", "A", "c", "cached", "m", "M", "b", "B"))
		b.wantCalls(f, []string{"z", "a", "m", "b"})
		redistest.Expect(f, g.Stats(), (singleflight.Stats{Hits: 6, Loaded: 5, Loads: 2}), "%+v")
		redistest.Gives(g.Do(f.Context(), "m", never(f)))(f, "M")
	})
}

// keysError returns the parts of a *KeysError for these keys.
func keysError(t testing.TB, err error, keys ...string) map[string]error {
	t.Helper()
	var failed *singleflight.KeysError
	redistest.CheckNow(t, errors.As(err, &failed) && slices.Equal(slices.Sorted(maps.Keys(failed.ByKey)), keys),
		"error %v; want a KeysError for %q", err, keys)
	return failed.ByKey
}

// What load leaves out is ErrNotFound, or its error if it returns one; what was found comes all the same. The text of the
// error has those of ten keys, in their order.
func TestDoManyPartial(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open()
		b := newBatches()
		b.value = func(key string) (string, bool) { return key, key != "b" && key != "d" }
		err := doMany(f, f.Context(), g, []string{"a", "b", "c", "d"}, b).got("a", "a", "c", "c")
		redistest.WantErr(f, err, singleflight.ErrNotFound, redistest.Says(f.Family+"/b", f.Family+"/d"))
		redistest.Check(f, !strings.Contains(err.Error(), f.Family+"/a"), "%v", err)
		failed := keysError(f, err, "b", "d")
		redistest.WantErr(f, failed["b"], singleflight.ErrNotFound)
		found, err := g.DoMany(f.Context(), []string{"a", "b", "x"}, func(context.Context, []string) (map[string]string, error) {
			return map[string]string{"b": "B"}, errBoom
		})
		redistest.WantErr(f, keysError(f, err, "x")["x"], errBoom)
		redistest.WantText(f, err, f.Family+"/x: boom")
		redistest.Check(f, len(found) == 2 && found["a"] == "a" && found["b"] == "B", "found %v", found)
		wantStored(f, g, "b", "B")
		s := g.Stats()
		redistest.Check(f, s.Errors == 3 && s.Loaded == 3 && s.Hits == 1, "%+v", s)
		_, err = g.DoMany(f.Context(), strings.Split("MLKJIHGFEDCB", ""), func(context.Context, []string) (map[string]string, error) { return nil, nil })
		lines := strings.Split(err.Error(), "\n")
		redistest.Check(f, len(lines) == 11 && strings.HasSuffix(lines[0], "/B: not found") && lines[10] == "and 2 more keys", "%q", lines)
	})
}

// What has come before ctx ends is returned, although the call waits for a key before it.
func TestDoManyKeepsWhatCameBeforeCtxEnded(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other, _ := f.two()
		o := newOrigin(f)
		slow, l := begin(f, f.Context(), other, "slow", o, o.load)
		keys := strings.Split("abcdefghij", "")
		ctx, leave := context.WithCancel(f.Context())
		some := doMany(f, ctx, g, append([]string{"slow"}, keys...), newBatches())
		synctest.Wait() // until it waits for the slow key alone
		leave()
		var want []string
		for _, key := range keys {
			want = append(want, key, strings.ToUpper(key))
		}
		redistest.WantErr(f, some.got(want...), context.Canceled, redistest.Says(f.Family+"/slow"))
		l.returns("v")
		slow.wantValue("v")
	})
}

// Two calls of which each has the lease of a key that the other waits for:
// each loads and publishes its own key before it waits, so neither waits for ever.
func TestDoManyCrossedCallsEnd(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.teach()
		var crossing sync.WaitGroup
		crossing.Add(2)
		start := func(keys ...string) (*many, *batches) {
			g, wire := f.open()
			// The first key's enter has run in both before either second's does.
			first := true
			wire.Split(func() {
				if first && wire.Sent("load enter") > 0 {
					first = false
					crossing.Done()
					crossing.Wait()
				}
			})
			b := newBatches()
			b.gate = make(chan struct{})
			f.Cleanup(func() { close(b.gate) })
			return doMany(f, f.Context(), g, keys, b), b
		}
		one, loadsX := start("x", "y")
		two, loadsY := start("y", "x")
		redistest.Get(f, "x to be loaded", loadsX.began)
		redistest.Get(f, "y to be loaded", loadsY.began)
		loadsX.gate <- struct{}{}
		redistest.Eventually(f, "x to be published", func() bool { return f.Server.Exists(f.Part("x", "value")) })
		loadsY.gate <- struct{}{}
		for _, m := range []*many{one, two} {
			redistest.WantErr(f, m.got("x", "X", "y", "Y"))
		}
		loadsX.wantCalls(f, []string{"x"})
		loadsY.wantCalls(f, []string{"y"})
	})
}

// A hit is one GET; a cold miss is three round trips for the process that loads. One that waits needs two and the
// subscription, behind which it asks once whether it missed a message; for a large value one more. However many keys, it
// is one pipeline of GETs, one of scripts to take the leases, and one to publish; in a Cluster one for each node.
func TestDoAndDoManyRoundTrips(t *testing.T) {
	each(t, func(f *fixture) {
		f.teach()
		for key, c := range map[string]struct {
			value string
			gets  int // of the one that waits
		}{"small": {"v", 1}, "large": {strings.Repeat("large", 1000), 2}} {
			g, wire := f.open(plain)
			other, others := f.open(plain)
			peek(f, g, key) // so that the clock of its server is known
			peek(f, other, key)
			o := newOrigin(f)
			trips, waits := wire.TripCounter(), others.TripCounter()
			first, l := begin(f, f.Context(), g, key, o, o.load)
			second := fetch(f, f.Context(), other, key, never(f))
			redistest.Eventually(f, "the subscription", func() bool { return others.Answered("load ask") == 1 })
			l.returns(c.value)
			first.Got()
			redistest.Expect(f, trips(), harness.TripCount{Gets: 1, Scripts: 2}, "a miss costs %+v")
			redistest.Expect(f, second.Got().Value, c.value, "another value")
			redistest.Expect(f, waits(), harness.TripCount{Gets: c.gets, Scripts: 2}, "waiting costs %+v")
			fetch(f, f.Context(), other, key, never(f)).Got()
			redistest.Expect(f, waits(), harness.TripCount{Gets: 1}, "a hit costs %+v")
			redistest.WantErr(f, g.Invalidate(f.Context(), key))
			redistest.Expect(f, trips(), harness.TripCount{Scripts: 1}, "an invalidation costs %+v")
		}
		nodes := 1
		if _, isCluster := f.RDB.(*redis.ClusterClient); isCluster {
			nodes = 3
		}
		g, wire := f.open()
		var keys, want []string
		for i := range 20 {
			keys = append(keys, fmt.Sprintf("k%d", i))
			want = append(want, keys[i], strings.ToUpper(keys[i]))
		}
		redistest.WantErr(f, g.Invalidate(f.Context(), keys...))
		for _, key := range keys { // so that the clocks of the servers are known
			peek(f, g, key)
		}
		b := newBatches()
		trips := wire.TripCounter()
		redistest.WantErr(f, doMany(f, f.Context(), g, keys, b).got(want...))
		b.wantCalls(f, keys)
		redistest.Expect(f, trips(), harness.TripCount{Gets: nodes, Scripts: 2 * nodes}, "the keys cost %+v")
		redistest.WantErr(f, doMany(f, f.Context(), g, keys, b).got(want...))
		redistest.Expect(f, trips(), harness.TripCount{Gets: nodes}, "hits cost %+v")
		redistest.WantErr(f, g.Invalidate(f.Context(), keys...))
		redistest.Expect(f, trips(), harness.TripCount{Scripts: nodes}, "invalidations cost %+v")
	})
}

// The methods of a ctx that panic end no process where a DoMany asks several servers.
func TestDoManyWithACtxThatPanics(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open(func(c *singleflight.Config[string]) { c.Codec = &jsonCodec{} }) // whose code ctx bounds
		keys := strings.Split("abcdefgh", "")
		redistest.Must(g.DoMany(f.Context(), keys, newBatches().load))(f)
		for n := range 25 {
			calls := atomic.Int64{}
			ctx := harness.BrokenCtx{Context: f.Within(time.Minute), Before: func(string) {
				if calls.Add(1) == int64(n) {
					panic("oh no")
				}
			}}
			func() {
				defer func() { _ = recover() }() // on the caller's goroutine it may panic
				_, _ = g.DoMany(ctx, keys, newBatches().load)
			}()
		}
	})
}
