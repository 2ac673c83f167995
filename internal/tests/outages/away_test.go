package outages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

const (
	awayCallers  = 200 // of a cache; a fifth as many take permits without waiting
	awayKeys     = 100
	awayMaxLoads = 8
	awayPause    = 100 * time.Millisecond // of a caller, after an error
)

// A service is a process with a cache and a semaphore, under load.
type service struct {
	cache  *singleflight.Group[string]
	limits *semaphore.Semaphore

	loads, running, most atomic.Int64
	calls, failed        atomic.Int64
	longest              atomic.Int64 // ns, of a call of the cache
	lastFailed           atomic.Int64 // ns since 1970
}

func newService(t *testing.T, rdb redis.UniversalClient, policy singleflight.Policy) *service {
	return &service{
		cache: redistest.Must(singleflight.New(rdb, singleflight.Config[string]{
			Name: redistest.Name(t), TTL: 500 * time.Millisecond, MaxLoads: awayMaxLoads, OnUnavailable: policy,
		}))(t),
		limits: redistest.Must(semaphore.New(rdb, semaphore.Config{Name: redistest.Name(t), Limit: 1000}))(t),
	}
}

func (s *service) load(context.Context) (string, error) {
	s.loads.Add(1)
	raise(&s.most, s.running.Add(1))
	defer s.running.Add(-1)
	time.Sleep(20 * time.Millisecond)
	return "value", nil
}

func raise(to *atomic.Int64, v int64) {
	for last := to.Load(); last < v && !to.CompareAndSwap(last, v); last = to.Load() {
	}
}

// work runs the callers until ctx ends.
func (s *service) work(ctx context.Context) {
	var all sync.WaitGroup
	for range awayCallers {
		all.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				_, err := s.cache.Do(context.Background(), fmt.Sprint(rand.N(awayKeys)), s.load)
				raise(&s.longest, int64(time.Since(began)))
				s.pause(err)
			}
		})
	}
	for range awayCallers / 5 {
		all.Go(func() {
			for ctx.Err() == nil {
				l, err := s.limits.TryAcquire(context.Background(), "k")
				if err == nil {
					time.Sleep(20 * time.Millisecond)
					err = l.Release()
				}
				s.pause(err)
			}
		})
	}
	all.Wait()
}

func (s *service) pause(err error) {
	s.calls.Add(1)
	if err == nil {
		time.Sleep(10 * time.Millisecond)
		return
	}
	if errors.Is(err, leasehold.ErrUnavailable) {
		s.failed.Add(1)
		raise(&s.lastFailed, time.Now().UnixNano())
	}
	time.Sleep(awayPause)
}

// A service under load goes through outages of several kinds. Its calls are quick once Redis is
// known to be away, MaxLoads holds, and it works when Redis is back. With LEASEHOLD_FIGURES=1
// the figures of docs/operations.md are measured: the outages are then longer.
func TestServiceWhileRedisIsAway(t *testing.T) {
	redistest.NeedServers(t)
	figures := os.Getenv("LEASEHOLD_FIGURES") == "1"
	long := func(d time.Duration) time.Duration {
		if figures {
			return d
		}
		return min(d, 2*time.Second)
	}
	down := func(srv *redistest.Server, d time.Duration) {
		srv.Kill()
		time.Sleep(d)
		srv.Restart()
	}
	outages := map[string]func(srv *redistest.Server){
		"killed": func(srv *redistest.Server) { down(srv, long(8*time.Second)) },
		"hung": func(srv *redistest.Server) {
			srv.Pause()
			time.Sleep(long(12 * time.Second))
			srv.Resume()
		},
		"flapping": func(srv *redistest.Server) {
			for end := time.Now().Add(long(10 * time.Second)); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
				down(srv, 500*time.Millisecond)
			}
		},
		"failover": func(srv *redistest.Server) { down(srv, long(3*time.Second)) },
		"script": func(srv *redistest.Server) {
			const loop, rounds = "for i = 1, ARGV[1] do end", 5_000_000
			rdb := srv.Client()
			_ = rdb.Ping(context.Background()).Err()
			began := time.Now()
			_ = rdb.Eval(context.Background(), loop, nil, rounds).Err()
			_ = rdb.Eval(context.Background(), loop, nil, int64(rounds*800*time.Millisecond/time.Since(began))).Err()
		},
		"cut": func(srv *redistest.Server) {
			_ = srv.Client().Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal").Err()
		},
	}
	policies := map[string]singleflight.Policy{"LoadLocally": singleflight.LoadLocally} // under which MaxLoads matters
	if figures {
		policies["Fail"] = singleflight.Fail
	}
	for policyName, policy := range policies {
		for name, bad := range outages {
			t.Run(name+" "+policyName, func(t *testing.T) {
				srv := redistest.StartServer(t, redistest.Newest(t))
				s := newService(t, srv.Client(), policy)
				ctx, end := context.WithCancel(t.Context())
				var working sync.WaitGroup
				working.Go(func() { s.work(ctx) })
				time.Sleep(time.Second)
				loads, began := s.loads.Load(), time.Now()
				bad(srv)
				perSecond := float64(s.loads.Load()-loads) / time.Since(began).Seconds()
				back := time.Now()
				time.Sleep(long(4 * time.Second))
				end()
				working.Wait()
				t.Logf("FIGURES | %s, %s | %d of %d failed | longest %v | %.0f loads a second | last error %v after it was back |", name, policyName,
					s.failed.Load(), s.calls.Load(), time.Duration(s.longest.Load()), perSecond, time.Unix(0, s.lastFailed.Load()).Sub(back))
				redistest.AtMost(t, s.most.Load(), awayMaxLoads, "%d loads at once")
				closing, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				redistest.NoError(t, errors.Join(s.cache.Close(closing), s.limits.Close(closing)))
			})
		}
	}
}

// In an outage every handle of every client gives the same kind of reason, for each
// operation, and each reason has a cause behind it.
func TestReasonsOfAnOutageAgree(t *testing.T) {
	for _, outage := range []struct {
		name   string
		begin  func(srv *redistest.Server)
		end    func(srv *redistest.Server)
		causes []string // one of these is in each error
		same   bool     // all holders are told the same error of the network, to the word
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
			// became of that connection. So the outage begins before the first renewal is due,
			// and where the machine is too busy for that, the words are not compared. Dials are late there, too.
			soon := false
			for i := 0; i < 5 && !soon; i++ {
				r = &reasons{T: t}
				began := time.Now()
				for range 4 {
					r.client(srv.Client(func(o *redis.Options) { o.ReadTimeout = time.Second }))
				}
				soon = time.Since(began) < 500*time.Millisecond
			}
			if !soon {
				outage.causes = append(outage.causes, "no connection after")
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
					failed, _ := errors.AsType[*net.OpError](o.err)
					told[fmt.Sprint(failed)]++
				}
				if !errors.Is(o.err, want) || !slices.ContainsFunc(outage.causes, func(c string) bool { return strings.Contains(o.err.Error(), c) }) {
					t.Errorf("%s: %v; want %v, because of one of %q", o.what, o.err, want, outage.causes)
				}
			}
			redistest.Check(t, !soon || !outage.same || len(told) == 1, "holders were told different things: %v", told)
			t.Logf("%d errors agree (to the word: %t); holders were told %v", len(r.calls), soon && outage.same, told)
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
