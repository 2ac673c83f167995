package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// cachingClient makes a client cache by itself. It reads the server's news only
// with the replies on the same connection, or once an hour.
func cachingClient(o *redis.Options) {
	o.Protocol = 3
	o.ClientSideCacheConfig = &redis.ClientSideCacheConfig{MaxEntries: 1000, DrainInterval: time.Hour}
}

// A result that is too large for a message is read when the message says that it is there. The client's own cache has
// the value before it still, which is what the waiter must not be given.
func TestFaultWaiterIsNotServedFromTheLocalCache(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	// The waiter has to read the new value before it expires.
	short := func(c *singleflight.Config[string]) { c.TTL = 500 * time.Millisecond }
	g, other := s.group(srv.Client(cachingClient), short), s.group(srv.Client(), short)
	warmUp(t, g)
	for i := range 5 {
		k := s.on(t, fmt.Sprint(i))
		redistest.Must(other.Do(t.Context(), k.Key, loaderOf("old")))(t)
		redistest.Must(g.Do(t.Context(), k.Key, loaderOf("old")))(t)
		time.Sleep(510 * time.Millisecond)
		want := strings.Repeat("new", 2000)
		began, gate := make(chan struct{}), make(chan struct{})
		loaded := k.fetch(other, func(context.Context) (string, error) {
			close(began)
			<-gate
			return want, nil
		})
		redistest.Get(t, "the load", began)
		waited := k.fetch(g, loaderOf("twice"))
		k.WaitQueued(1)
		close(gate)
		wantValue(t, "who loads", want, loaded)
		wantValue(t, "who waits", want, waited)
	}
}

// A client that caches by itself makes no round trip for a hit.
func TestFaultLocalHitsMakeNoRoundTrip(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	p := redistest.NewProxy(t, srv.Addr())
	g := s.group(p.Client(cachingClient))
	for range 3 { // load, and have it cached
		redistest.Must(g.Do(t.Context(), s.Key, loaderOf("value")))(t)
	}
	time.Sleep(50 * time.Millisecond) // what a load leaves to do
	p.ResetCounts()
	for range 100 {
		redistest.Require(t, redistest.Must(g.Do(t.Context(), s.Key, loaderOf("again")))(t), "value", "a hit gave %q")
	}
	all := p.Commands()
	redistest.Check(t, len(all) == 0, "100 hits sent %v; want nothing", all)
}

// After an Invalidate in another process a client that caches by itself serves
// the old value until the server's message is there: as documented, for some ms.
func TestFaultLocalStaleness(t *testing.T) {
	const rounds = 100
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	g := s.group(srv.Client(cachingClient, func(o *redis.Options) { o.ClientSideCacheConfig.DrainInterval = 0 }))
	other := s.group(srv.Client())
	warmUp(t, g)
	var stale []time.Duration
	for i := range rounds {
		key := fmt.Sprint("stale", i)
		for range 3 {
			redistest.Must(g.Do(t.Context(), key, loaderOf("old")))(t)
		}
		redistest.WantErr(t, other.Invalidate(t.Context(), key))
		done := time.Now()
		redistest.Eventually(t, "the end of "+key, func() bool {
			_, there, err := g.Peek(t.Context(), key)
			return err == nil && !there
		})
		stale = append(stale, time.Since(done))
	}
	slices.Sort(stale)
	t.Logf("after an Invalidate elsewhere the old value was served for %v (median), %v (worst of %d)", stale[rounds/2], stale[rounds-1], rounds)
	redistest.AtMost(t, stale[rounds-1], harness.Slack, "an invalidated value was served for %v")
}

// The handle that called Invalidate itself never serves the old value again,
// although its client still caches it: the server's news is held up.
func TestFaultLocalCacheOfWhoInvalidated(t *testing.T) {
	const rounds = 100
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	p := redistest.NewProxy(t, srv.Addr())
	rdb := p.Client(cachingClient)
	g, bystander := s.group(rdb), s.group(rdb)
	warmUp(t, g)
	for i := range rounds {
		for range 3 {
			redistest.Must(g.Do(t.Context(), fmt.Sprint("own", i), loaderOf("old")))(t)
		}
	}
	time.Sleep(50 * time.Millisecond)
	// The connections that know these keys say no more: the news comes behind these replies.
	var pings []*harness.Call[struct{}]
	var holds []*redistest.Fault
	for range rdb.PoolStats().TotalConns {
		held := p.HoldReply(redistest.Named("PING"), 1)
		pings = append(pings, harness.Begin(t, func() error { return rdb.Ping(context.Background()).Err() }))
		held.Wait()
		holds = append(holds, held)
	}
	cached := 0
	for i := range rounds {
		key := fmt.Sprint("own", i)
		redistest.WantErr(t, g.Invalidate(t.Context(), key))
		if r, there, err := bystander.Peek(t.Context(), key); err == nil && there && r.Value == "old" {
			cached++
		}
		r, err := g.Fetch(t.Context(), key, loaderOf("new"))
		redistest.Check(t, err == nil && r.Value == "new", "after its own Invalidate the handle has %q (%v), %v", r.Value, r.Source, err)
	}
	t.Logf("in %d of %d rounds the client still had the old value", cached, rounds)
	redistest.Check(t, cached >= rounds/2, "in %d rounds of %d the client still had the old value: this shows little", cached, rounds)
	for i, held := range holds {
		held.Release()
		pings[i].Got()
	}
}
