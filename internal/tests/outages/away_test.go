package outages

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
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

	loads, running, most         atomic.Int64
	calls, failed, slow, tries   atomic.Int64
	longest, longestTry, longRel atomic.Int64 // ns
	lastFailed                   atomic.Int64 // ns since 1970
}

func newService(t *testing.T, rdb redis.UniversalClient, policy singleflight.Policy) *service {
	s := &service{}
	var err error
	s.cache, err = singleflight.New(rdb, singleflight.Config[string]{
		Name: redistest.Name(t), TTL: 500 * time.Millisecond, MaxLoads: awayMaxLoads, OnUnavailable: policy,
	})
	redistest.WantErr(t, err)
	if s.limits, err = semaphore.New(rdb, semaphore.Config{Name: redistest.Name(t), Limit: 1000}); err != nil {
		t.Fatal(err)
	}
	return s
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
				took := time.Since(began)
				s.calls.Add(1)
				raise(&s.longest, int64(took))
				if took > 300*time.Millisecond {
					s.slow.Add(1)
				}
				s.pause(err)
			}
		})
	}
	for range awayCallers / 5 {
		all.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				l, err := s.limits.TryAcquire(context.Background(), "k")
				s.tries.Add(1)
				raise(&s.longestTry, int64(time.Since(began)))
				if err == nil {
					time.Sleep(20 * time.Millisecond)
					began = time.Now()
					err = l.Release()
					raise(&s.longRel, int64(time.Since(began)))
				}
				s.pause(err)
			}
		})
	}
	all.Wait()
}

func (s *service) pause(err error) {
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
	type outage struct {
		name string
		bad  func(srv *redistest.Server)
	}
	down := func(srv *redistest.Server, d time.Duration) {
		srv.Kill()
		time.Sleep(d)
		srv.Restart()
	}
	outages := []outage{
		{"killed", func(srv *redistest.Server) { down(srv, long(8*time.Second)) }},
		{"hung", func(srv *redistest.Server) {
			srv.Pause()
			time.Sleep(long(12 * time.Second))
			srv.Resume()
		}},
		{"flapping", func(srv *redistest.Server) {
			for end := time.Now().Add(long(10 * time.Second)); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
				down(srv, 500*time.Millisecond)
			}
		}},
		{"failover", func(srv *redistest.Server) { down(srv, long(3*time.Second)) }},
		{"script", func(srv *redistest.Server) {
			const loop, rounds = "for i = 1, ARGV[1] do end", 5_000_000
			rdb := srv.Client()
			_ = rdb.Ping(context.Background()).Err()
			began := time.Now()
			_ = rdb.Eval(context.Background(), loop, nil, rounds).Err()
			_ = rdb.Eval(context.Background(), loop, nil, int64(rounds*800*time.Millisecond/time.Since(began))).Err()
		}},
		{"cut", func(srv *redistest.Server) {
			_ = srv.Client().Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal").Err()
		}},
	}
	policies := []singleflight.Policy{singleflight.LoadLocally} // the one under which MaxLoads matters
	if figures {
		policies = append(policies, singleflight.Fail)
	}
	for _, policy := range policies {
		for _, o := range outages {
			name := map[singleflight.Policy]string{singleflight.Fail: "Fail", singleflight.LoadLocally: "LoadLocally"}[policy]
			t.Run(o.name+" "+name, func(t *testing.T) {
				srv := redistest.StartServer(t, redistest.Newest(t))
				s := newService(t, srv.Client(), policy)
				ctx, end := context.WithCancel(t.Context())
				var working sync.WaitGroup
				working.Go(func() { s.work(ctx) })
				time.Sleep(time.Second)
				loads, began := s.loads.Load(), time.Now()
				o.bad(srv)
				perSecond := float64(s.loads.Load()-loads) / time.Since(began).Seconds()
				back := time.Now()
				time.Sleep(long(4 * time.Second))
				end()
				working.Wait()
				ms := func(ns *atomic.Int64) time.Duration { return time.Duration(ns.Load()).Round(10 * time.Millisecond) }
				t.Logf("FIGURES | %s | %d of %d | %v | %d | %.0f, %d | %v, %v | %v |", t.Name()[len("TestServiceWhileRedisIsAway/"):],
					s.failed.Load(), s.calls.Load()+s.tries.Load(), ms(&s.longest), s.slow.Load(), perSecond, s.most.Load(),
					ms(&s.longestTry), ms(&s.longRel), max(0, time.Unix(0, s.lastFailed.Load()).Sub(back)).Round(10*time.Millisecond))
				n := s.most.Load()
				redistest.Check(t, n <= awayMaxLoads, "%d loads at once, want %d at most", n, awayMaxLoads)
				closing, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				redistest.NoError(t, errors.Join(s.cache.Close(closing), s.limits.Close(closing)))
			})
		}
	}
}
