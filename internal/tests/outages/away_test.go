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
