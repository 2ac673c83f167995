package outages

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/singleflight"
)

// The server's clock is set forth while leases are held: they end, and their holders are told by their next
// renewal. It is set back: they are kept, and tokens rise though the clock is behind the last. 26 hours are
// longer than a fencing token is remembered.
func TestServerClockJumps(t *testing.T) {
	t.Parallel()
	for name, far := range map[string]time.Duration{"an hour": time.Hour, "26 hours": 26 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, clock := redistest.StartWithClock(t, redistest.Newest(t))
			c := newCrowd(t, func() redis.UniversalClient { return srv.Client() })
			h := c.hold()
			c.work()
			clock.Shift(far)
			at := time.Now()
			h.allTold()
			c.recovered(at)
			h.keptOrTold()
			c.work()

			h = c.hold()
			clock.Shift(0)
			at = time.Now()
			c.recovered(at)
			select { // a few renewals
			case <-h.leases[0].Context().Done():
			case <-h.leases[1].Context().Done():
			case <-time.After(longTTL * 4 / 3):
			}
			redistest.Expect(t, h.keptOrTold(), 2, "set back, %d of 2 leases were kept")
			c.work()
			c.check()
		})
	}
}

// The clock is set back by an hour when a holder is dead: its lease lasts as much
// longer, as is said in docs/guarantees.md, and not longer than that.
func TestServerClockSetBackUnderADeadHolder(t *testing.T) {
	t.Parallel()
	srv, clock := redistest.StartWithClock(t, redistest.Newest(t))
	proxy := redistest.NewProxy(t, srv.Addr())
	name := redistest.Name(t)
	open := func(rdb redis.UniversalClient) *mutex.Mutex {
		m := redistest.Must(mutex.New(rdb, mutex.Config{Name: name, TTL: ttl}))(t)
		t.Cleanup(func() {
			ctx, cancel := within()
			defer cancel()
			_ = m.Close(ctx) // of the dead one: it can't give back
		})
		return m
	}
	l := redistest.Must(open(proxy.Client(func(o *redis.Options) { o.ReadTimeout = time.Second })).Lock(t.Context(), key))(t)
	proxy.Cut(true, true)
	clock.Shift(-time.Hour)
	live := open(srv.Client())
	waiter := harness.Start(t, func() (*mutex.Lock, error) {
		ctx, cancel := within()
		defer cancel()
		return live.Lock(ctx, key)
	})
	<-l.Context().Done() // told by its own clock, in time
	t.Logf("the dead holder was told: %v", context.Cause(l.Context()))
	holders := "leasehold:mtx:{" + name + ":" + key + "}:holders"
	ends, err := srv.Client().ZRangeWithScores(t.Context(), holders, 0, 0).Result()
	redistest.CheckNow(t, err == nil && len(ends) == 1, "the holders: %v, %v", ends, err)
	now := redistest.Must(srv.Client().Time(t.Context()).Result())(t)
	left := time.UnixMilli(int64(ends[0].Score)).Sub(now)
	t.Logf("the dead holder's lease lasts for another %v", left)
	redistest.Check(t, left <= time.Hour+ttl, "the lease lasts for %v; want an hour and the TTL at most", left)
	redistest.CheckNow(t, !waiter.Ended(), "granted beside a lease that has not ended: %v", waiter.Err)
	clock.Shift(0)
	next := waiter.Within(patience, "the waiter").Got()
	redistest.Check(t, next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
	redistest.WantErr(t, next.Unlock())
}

// The server's clock is set forth, and back: a Put is stored all the same. A process that only puts and reads learns
// of the jump by its Put alone.
func TestPutAfterTheServerClockJumps(t *testing.T) {
	t.Parallel()
	srv, clock := redistest.StartWithClock(t, redistest.Newest(t))
	g := redistest.Must(singleflight.New(srv.Client(), singleflight.Config[string]{Name: redistest.Name(t), TTL: time.Hour}))(t)
	for _, far := range []time.Duration{0, time.Minute, 0} {
		clock.Shift(far)
		redistest.WantErr(t, g.Put(t.Context(), key, far.String()))
		got, _, err := g.Peek(t.Context(), key)
		redistest.Check(t, err == nil && got.Value == far.String(), "the clock %v ahead: %q, %v", far, got.Value, err)
	}
	harness.Close(t, g)
}

// The server's clock is set forth. A process that only reads takes a value for stale soon after its TTL.
func TestAgesAfterTheServerClockJumps(t *testing.T) {
	t.Parallel()
	srv, clock := redistest.StartWithClock(t, redistest.Newest(t))
	cfg := singleflight.Config[string]{Name: redistest.Name(t), TTL: 100 * time.Millisecond, StaleFor: time.Hour}
	writer, reader := redistest.Must(singleflight.New(srv.Client(), cfg))(t), redistest.Must(singleflight.New(srv.Client(), cfg))(t)
	redistest.WantErr(t, redistest.ErrorOf(reader.Fetch(t.Context(), key, func(context.Context) (string, error) { return "v", nil })))
	clock.Shift(time.Minute)
	redistest.WantErr(t, writer.Put(t.Context(), key, "w"))
	redistest.Eventually(t, "the value is stale", func() bool {
		got, _, err := reader.Peek(t.Context(), key)
		return err == nil && got.Value == "w" && got.Source == singleflight.Stale
	})
	harness.Close(t, writer)
	harness.Close(t, reader)
}
