package faults

import (
	"context"
	"fmt"
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
	s := newSite(t, harness.Loads, srv.Client())
	// The waiter has to read the new value before it expires.
	short := func(c *singleflight.Config[string]) { c.TTL = 500 * time.Millisecond }
	g, other := s.group(srv.Client(cachingClient), short), s.group(srv.Client(), short)
	warmUp(t, g)
	for i := range 5 {
		k := s.on(t, fmt.Sprint(i))
		redistest.Must(other.Do(t.Context(), k.key, loaderOf("old")))(t)
		redistest.Must(g.Do(t.Context(), k.key, loaderOf("old")))(t)
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
		k.waitQueued(1)
		close(gate)
		wantValue(t, "who loads", want, loaded)
		wantValue(t, "who waits", want, waited)
	}
}

// After an Invalidate in another process a client that caches by itself serves
// the old value until the server's message is there: as documented, for some ms.
func TestFaultLocalStaleness(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newSite(t, harness.Loads, srv.Client())
	g := s.group(srv.Client(cachingClient, func(o *redis.Options) { o.ClientSideCacheConfig.DrainInterval = 0 }))
	other := s.group(srv.Client())
	worst := time.Duration(0)
	for i := range 100 {
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
		worst = max(worst, time.Since(done))
	}
	t.Logf("after an Invalidate elsewhere the old value was served for %v at most", worst)
	redistest.AtMost(t, worst, harness.Slack, "an invalidated value was served for %v")
}

// A client that caches by itself makes no round trip for a hit. Yet the handle that called Invalidate itself never
// serves the old value again, although its client still caches it: the server's news is held up.
func TestFaultLocalCacheOfWhoInvalidated(t *testing.T) {
	const rounds = 100
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newSite(t, harness.Loads, srv.Client())
	p := redistest.NewProxy(t, srv.Addr())
	rdb := p.Client(cachingClient)
	g, bystander := s.group(rdb), s.group(rdb)
	warmUp(t, g)
	key := func(i int) string { return fmt.Sprint("own", i%rounds) }
	for i := range 3 * rounds { // load, and have it cached
		redistest.Must(g.Do(t.Context(), key(i), loaderOf("old")))(t)
	}
	time.Sleep(50 * time.Millisecond) // what a load leaves to do
	p.ResetCounts()
	for i := range rounds {
		redistest.Gives(g.Do(t.Context(), key(i), loaderOf("again")))(t, "old")
	}
	all := p.Commands()
	redistest.Check(t, len(all) == 0, "%d hits sent %v; want nothing", rounds, all)
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
		redistest.WantErr(t, g.Invalidate(t.Context(), key(i)))
		if r, there, err := bystander.Peek(t.Context(), key(i)); err == nil && there && r.Value == "old" {
			cached++
		}
		redistest.Gives(g.Do(t.Context(), key(i), loaderOf("new")))(t, "new")
	}
	redistest.Check(t, cached >= rounds/2, "in %d rounds of %d the client still had the old value: this shows little", cached, rounds)
	for i, held := range holds {
		held.Release()
		pings[i].Got()
	}
}
