package listing_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// fill puts n leases of one key into Redis, each with an expiry of its own.
func fill(t *testing.T, rdb redis.UniversalClient, key string, n int, expiry func(i int) time.Time) []string {
	t.Helper()
	members := make([]string, n)
	pipe := rdb.Pipeline()
	for i := range n {
		members[i] = fmt.Sprintf("%s~host:%d.%d.1.30000.20000", handle, i%7, i+1)
		pipe.ZAdd(t.Context(), key, redis.Z{Score: float64(expiry(i).UnixMilli()), Member: members[i]})
		if i%1000 == 999 || i == n-1 {
			redistest.Must(pipe.Exec(t.Context()))(t)
			pipe = rdb.Pipeline()
		}
	}
	return members
}

// While all leases of a key are renewed again and again, each listing has each of
// them, once.
func TestListingIsCompleteWhileRenewalsRun(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		const n = 10_000
		rdb, of := target.Client(t), listing.Of(redistest.Name(t), keys.Semaphore, "big", "k", false)
		key := of.Part("holders")
		began := time.Now()
		members := fill(t, rdb, key, n, func(i int) time.Time { return began.Add(time.Minute + time.Duration(i)*time.Millisecond) })
		var renewed atomic.Int64
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				// As the renewals of one process do: some hundred at once.
				pipe := rdb.Pipeline()
				for j := range 100 {
					pipe.ZAddArgs(context.Background(), key, redis.ZAddArgs{XX: true, GT: true, Members: []redis.Z{{
						Score: float64(time.Now().Add(time.Minute + 20*time.Second).UnixMilli()), Member: members[(i*100+j)%n],
					}}})
				}
				if _, err := pipe.Exec(context.Background()); err != nil {
					t.Error(err)
					return
				}
				renewed.Add(100)
			}
		}()
		defer func() { close(stop); <-stopped }()
		redistest.Eventually(t, "renewals", func() bool { return renewed.Load() > 1000 })
		l := listing.New(rdb, "")
		for range 5 {
			before := renewed.Load()
			s := redistest.Must(l.State(t.Context(), of, listing.Bounds{}))(t)
			seen := map[string]bool{}
			for _, h := range s.Holders {
				redistest.CheckNow(t, !seen[h.ID] && h.Permits == 1, "%s is listed twice", h.ID)
				seen[h.ID] = true
			}
			redistest.CheckNow(t, len(seen) == n && s.InUse == n, "%d of %d were listed, while %d renewals ran", len(seen), n, renewed.Load()-before)
		}
	})
}

// 5,000 keys, spread over all of a Cluster. A client in a wrapper is asked as a Cluster, too: the wrapper's own Scan
// sees one server.
func TestAllKeysOfAClusterAreListed(t *testing.T) {
	cluster, prefix := redistest.SharedCluster(t, redistest.Newest(t)).Client(), redistest.Name(t)
	const n = 5000
	pipe := cluster.Pipeline()
	for i := range n {
		ends := float64(time.Now().Add(time.Minute).UnixMilli())
		pipe.ZAdd(t.Context(), fmt.Sprintf("%s:mtx:{jobs:%d}:holders", prefix, i), redis.Z{Score: ends, Member: handle + ".1.1.30000.1"})
	}
	redistest.Must(pipe.Exec(t.Context()))(t)
	for _, rdb := range []redis.UniversalClient{cluster, struct{ redis.UniversalClient }{cluster}} {
		some, held := uses(t, listing.New(rdb, prefix)), 0
		for _, u := range some {
			held += u.InUse
		}
		redistest.Check(t, len(some) == n && held == n, "a %T lists %d keys with %d locks, want %d", rdb, len(some), held, n)
	}
}

// 3000 permits of one expiry fill more than a page, with no score to go on from.
func TestPermitsOfOneExpiryAreAllListed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		rdb, prefix := target.Client(t), redistest.Name(t)
		at := time.Now().Add(time.Minute)
		later := at.Add(time.Second)
		fill(t, rdb, prefix+":sem:{n:k}:holders", 3500, func(i int) time.Time {
			if i < 3000 {
				return at
			}
			return later
		})
		l := listing.New(rdb, prefix)
		s, err := l.State(t.Context(), listing.Of(prefix, keys.Semaphore, "n", "k", false), listing.Bounds{})
		redistest.CheckNow(t, err == nil && len(s.Holders) == 3500, "%d of 3500 were listed: %v", len(s.Holders), err)
		_, err = l.State(t.Context(), s.Resource, listing.Bounds{Entries: 2000})
		redistest.CheckNow(t, errors.Is(err, listing.ErrTooMany), "more than 2000 give %v", err)
	})
}

// What has expired is never listed. A waiter that is parked, since its sign of life is overdue, has waited since its
// ticket. A key of another type spoils its own line alone.
func TestExpiredAndParkedEntries(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		rdb, prefix := target.Client(t), redistest.Name(t)
		now := time.Now()
		of := listing.Of(prefix, keys.Semaphore, "n", "k", false)
		fill(t, rdb, of.Part("holders"), 1200, func(i int) time.Time {
			if i < 1100 {
				return now.Add(-time.Duration(i+1) * time.Millisecond)
			}
			return now.Add(time.Minute)
		})
		wait := func(seq int, ticket int64, alive time.Duration) {
			member := fmt.Sprintf("%s.%d.1.30000.5", handle, seq)
			rdb.ZAdd(t.Context(), of.Part("queue"), redis.Z{Score: float64(ticket), Member: member})
			rdb.ZAdd(t.Context(), of.Part("alive"), redis.Z{Score: float64(now.Add(alive).UnixMilli()), Member: member})
		}
		wait(9998, now.UnixMicro(), -time.Millisecond)
		wait(9999, now.Add(-time.Minute).UnixMicro()+1<<52, time.Minute)
		rdb.Set(t.Context(), prefix+":sem:{n:bad}:holders", "x", time.Minute)
		l := listing.New(rdb, prefix)
		s := redistest.Must(l.State(t.Context(), of, listing.Bounds{}))(t)
		redistest.CheckNow(t, len(s.Holders) == 100 && s.InUse == 100 && len(s.Waiters) == 1,
			"%d holders and %d waiters are listed, want 100 and 1", len(s.Holders), len(s.Waiters))
		some := uses(t, l)
		u, bad := find(t, some, keys.Semaphore, "k"), find(t, some, keys.Semaphore, "bad")
		redistest.CheckNow(t, u.InUse == 100 && u.Waiting == 1 && u.Err == nil && bad.Err != nil, "the lines are %+v and %+v", u, bad)
		for _, got := range []time.Duration{s.Waiters[0].WaitingFor, u.LongestWait} {
			redistest.Between(t, got, 59*time.Second, 2*time.Minute, "it has waited for %v; want a minute")
		}
	})
}

// A lease that is renewed while a listing takes longer than it had left when it was read
// is held all the while, and listed.
func TestLeaseThatIsRenewedDuringASlowListingIsListed(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		if target.Cluster != nil {
			t.Skip("the clock is asked for at a node, past the hooks of the client")
		}
		for _, kind := range []keys.Kind{keys.Semaphore, keys.Mutex} {
			t.Run(string(kind), func(t *testing.T) {
				t.Parallel()
				admin, rdb, prefix := target.Admin(t), target.Client(t), redistest.Name(t)
				r := listing.Of(prefix, kind, "slow", "k", false)
				member, expired := handle+".1.1.1000.2", handle+".2.1.1000.2"
				set := func(member string, left time.Duration) {
					admin.ZAdd(t.Context(), r.Part("holders"), redis.Z{Score: float64(time.Now().Add(left).UnixMilli()), Member: member})
				}
				redistest.WantErr(t, rdb.Ping(t.Context()).Err()) // it has a connection
				var readings atomic.Int32                         // of the server's clock
				rdb.AddHook(redistest.Around(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
					switch {
					case cmds[0].Name() != "time":
					case readings.Add(1) == 1:
						set(member, time.Second)
						set(expired, time.Second)
					case readings.Load() == 2:
						set(member, time.Minute)
						time.Sleep(1100 * time.Millisecond)
					}
					return send()
				}))
				s := redistest.Must(listing.New(rdb, prefix).State(t.Context(), r, listing.Bounds{}))(t)
				redistest.Check(t, len(s.Holders) == 1 && s.Holders[0].ID == handle[:8]+"-1", "listed are %+v", s.Holders)
			})
		}
	})
}
