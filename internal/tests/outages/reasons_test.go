package outages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// In an outage every handle of every client gives the same kind of reason, for each
// operation, and each reason has a cause behind it.
func TestReasonsOfAnOutageAgree(t *testing.T) {
	for _, outage := range []struct {
		name   string
		begin  func(srv *redistest.Server)
		end    func(srv *redistest.Server)
		causes []string // one of these is in each error
		same   bool     // all holders are told the same, to the word
	}{
		{
			"the connection is refused", (*redistest.Server).Kill, (*redistest.Server).Restart,
			[]string{"connection refused", "EOF", "connection reset", "broken pipe"}, // the last ones: calls under way
			true,
		},
		{
			"the server is stopped", (*redistest.Server).Pause, (*redistest.Server).Resume,
			[]string{"i/o timeout", "no answer", "no connection after", "connection pool timeout", "has answered nothing"},
			false, // a renewal may have timed out, or not yet
		},
	} {
		t.Run(outage.name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.StartServer(t, redistest.Newest(t))
			var r *reasons
			// A renewal that is under way, or has left an idle connection, tells its holder what
			// became of that connection. So the outage begins before the first renewal is due.
			for range 5 {
				r = &reasons{T: t}
				began := time.Now()
				for range 4 {
					r.client(srv.Client(func(o *redis.Options) { o.ReadTimeout = time.Second }))
				}
				if time.Since(began) < 500*time.Millisecond {
					break
				}
			}
			outage.begin(srv)
			var all sync.WaitGroup
			for i := range r.calls {
				all.Go(func() { r.calls[i].err = r.calls[i].make() })
			}
			all.Wait()
			outage.end(srv)
			told := map[string]int{}
			for _, o := range r.calls {
				want := leasehold.ErrUnavailable
				if o.holds {
					want = leasehold.ErrLost
					_, said, _ := strings.Cut(fmt.Sprint(o.err), want.Error())
					told[said]++
				}
				if !errors.Is(o.err, want) || !slices.ContainsFunc(outage.causes, func(c string) bool { return strings.Contains(o.err.Error(), c) }) {
					t.Errorf("%s: %v; want %v, because of one of %q", o.what, o.err, want, outage.causes)
				}
			}
			redistest.Check(t, !outage.same || len(told) == 1, "holders were told different things: %v", told)
			t.Logf("%d errors agree; holders were told %v", len(r.calls), told)
		})
	}
}

// reasons are calls of several clients, and their errors.
type reasons struct {
	*testing.T
	calls []reason
}

type reason struct {
	what  string
	holds bool // it is why a lease was lost
	make  func() error
	err   error
}

func (r *reasons) add(what string, holds bool, call func() error) {
	r.calls = append(r.calls, reason{what: what, holds: holds, make: call})
}

// client adds calls of a handle of each package, on keys of their own.
func (r *reasons) client(rdb *redis.Client) {
	const ttl = 2 * time.Second
	ctx := context.Background()
	locks := redistest.Must(mutex.New(rdb, mutex.Config{Name: "n", TTL: ttl}))(r)
	caps := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "n", TTL: ttl, Limit: 1}))(r)
	values := redistest.Must(singleflight.New(rdb, singleflight.Config[string]{
		Name: "n", TTL: time.Minute, LeaseTTL: ttl, Logger: slog.New(slog.DiscardHandler),
	}))(r)
	r.Cleanup(func() {
		for _, h := range []harness.Handle{locks, caps, values} {
			harness.CloseWithin(r, 20*time.Second, h)
		}
	})
	ended := func(lease context.Context) func() error {
		return func() error { <-lease.Done(); return context.Cause(lease) }
	}
	const keys = 10
	for i := range keys {
		key := fmt.Sprintf("%p-%d", rdb, i)
		free := key + "-free"
		l, p := redistest.Must(locks.Lock(ctx, key))(r), redistest.Must(caps.Acquire(ctx, key))(r)
		if i%2 == 0 {
			r.add("hold a lock", true, ended(l.Context()))
			r.add("hold a permit", true, ended(p.Context()))
			r.add("extend", false, func() error { return l.Extend(ctx, time.Minute) })
		} else {
			r.add("unlock", false, l.Unlock)
			r.add("release", false, p.Release)
		}
		load := make(chan context.Context, 1)
		fetched := harness.Start(r, func() (string, error) {
			return values.Do(ctx, key, func(ctx context.Context) (string, error) {
				load <- ctx
				<-ctx.Done()
				return "", context.Cause(ctx)
			})
		})
		r.add("hold a load", true, ended(redistest.Get(r, "a load", load)))
		r.add("load", false, func() error { <-fetched.Done; return fetched.Err })
		r.add("lock", false, func() error { return redistest.ErrorOf(locks.Lock(ctx, free)) })
		r.add("try to lock", false, func() error { return redistest.ErrorOf(locks.TryLock(ctx, free)) })
		r.add("acquire", false, func() error { return redistest.ErrorOf(caps.Acquire(ctx, free)) })
		r.add("do", false, func() error {
			return redistest.ErrorOf(values.Do(ctx, free, func(context.Context) (string, error) { return "", nil }))
		})
		r.add("invalidate", false, func() error { return values.Invalidate(ctx, free) })
	}
	key := fmt.Sprintf("%p-waited-for", rdb)
	r.add("hold what is waited for", true, ended(redistest.Must(locks.Lock(ctx, key))(r).Context()))
	waiter := harness.StartQueued(&harness.Fixture{T: r.T, RDB: rdb, Kind: harness.Locks, Family: "n"}, key, func() (*mutex.Lock, error) { return locks.Lock(ctx, key) })
	r.add("wait", false, func() error { <-waiter.Done; return waiter.Err })
}
