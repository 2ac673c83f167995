// Package multi attacks package multi: with cuts, silences and killed processes.
package multi

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

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const ttl = 3 * time.Second

// inside knows who holds which key, as the holders believe.
type inside struct {
	mu  sync.Mutex
	ctx [8]context.Context
}

// enter returns an error if another holder's ctx has not ended.
func (s *inside) enter(ctx context.Context, keys []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		if at := s.ctx[k]; at != nil && at.Err() == nil && ctx.Err() == nil {
			return fmt.Errorf("two hold key %d", k)
		}
	}
	for _, k := range keys {
		s.ctx[k] = ctx
	}
	return nil
}

func (s *inside) leave(ctx context.Context, keys []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		if s.ctx[k] == ctx {
			s.ctx[k] = nil
		}
	}
}

func raise(most *atomic.Int64, d time.Duration) {
	for old := most.Load(); int64(d) > old && !most.CompareAndSwap(old, int64(d)); old = most.Load() {
	}
}

// 200 callers in four processes take two to four of eight locks, in any order, while links are
// cut and one process is killed. LEASEHOLD_SOAK makes it longer.
func TestCrowdUnderCuts(t *testing.T) {
	lasts := 6 * time.Second
	if long, err := time.ParseDuration(os.Getenv("LEASEHOLD_SOAK")); err == nil {
		lasts = long
	}
	redistest.OnNewest(t, func(t *testing.T, target redistest.Target) {
		f := harness.New(t, harness.Locks, target)
		seed := redistest.Seed(t)
		var wires []*harness.Wire
		var locks []*mutex.Mutex
		for range 4 {
			w := &harness.Wire{}
			rdb := f.Connect(w)
			rdb.AddHook(w)
			m := redistest.Must(mutex.New(rdb, mutex.Config{Name: f.Family, TTL: ttl, KeepFor: harness.KeepFor(ttl)}))(t)
			wires, locks = append(wires, w), append(locks, m)
		}
		var in inside
		var served, cut [4]atomic.Int32
		var longest, usual atomic.Int64 // waits: of all, and of those before the kill
		running, end := context.WithTimeout(t.Context(), lasts)
		defer end()
		alive, kill := context.WithCancel(running) // of the process that is killed
		defer kill()
		var crowd sync.WaitGroup
		for i := range 200 {
			random := rand.New(rand.NewPCG(uint64(seed), uint64(i)))
			crowd.Go(func() {
				p := i % 4
				ctx := running
				if p == 3 {
					ctx = alive
				}
				for ctx.Err() == nil {
					keys := random.Perm(8)[:2+random.IntN(3)]
					var items []multi.Item
					for _, k := range keys {
						items = append(items, multi.Lock(locks[p], fmt.Sprint(k)))
					}
					began := time.Now()
					err := multi.Do(ctx, func(ctx context.Context, _ *multi.Lease) error {
						waited := time.Since(began)
						raise(&longest, waited)
						if alive.Err() == nil {
							raise(&usual, waited)
						}
						redistest.NoError(t, in.enter(ctx, keys))
						time.Sleep(time.Millisecond)
						in.leave(ctx, keys)
						return nil
					}, items...)
					switch {
					case err == nil:
						served[p].Add(1)
					case ctx.Err() != nil:
					case errors.Is(err, leasehold.ErrLost), errors.Is(err, leasehold.ErrUnavailable):
						cut[p].Add(1)
						time.Sleep(10 * time.Millisecond)
					default:
						t.Error(err)
					}
				}
			})
		}
		// One process after the other is cut off for a moment, and the last one is killed.
		killed := false
		for n := 0; running.Err() == nil; n++ {
			select {
			case <-time.After(lasts / 12):
			case <-running.Done():
				continue
			}
			switch w := wires[n%3]; {
			case n == 3:
				killed = true
				wires[3].Cut()
				kill()
			default:
				w.Cut()
				time.Sleep(50 * time.Millisecond)
				w.Heal()
			}
		}
		crowd.Wait()
		for p, m := range locks[:3] {
			harness.CloseWithin(t, 10*time.Second, m)
			redistest.Check(t, served[p].Load() != 0, "process %d was never served", p)
		}
		t.Logf("served %d, %d, %d and %d; calls that a cut ended: %d, %d and %d; longest wait %v, before the kill %v",
			served[0].Load(), served[1].Load(), served[2].Load(), served[3].Load(), cut[0].Load(), cut[1].Load(), cut[2].Load(), time.Duration(longest.Load()), time.Duration(usual.Load()))
		redistest.Check(t, killed, "no process was killed")
		// The locks of the killed process, and those handed to its waiters, are free after a TTL.
		// Then the callers that piled up have their turns.
		d, most := time.Duration(longest.Load()), ttl+time.Second+2*time.Duration(usual.Load())
		redistest.Check(t, d <= most, "a caller waited %v; want %v at most", d, most)
		for k := range 8 {
			for _, part := range []string{"holders", "queue"} {
				redistest.Eventually(t, fmt.Sprintf("the %s of key %d to go", part, k), func() bool {
					return f.RDB.Exists(t.Context(), f.Part(fmt.Sprint(k), part)).Val() == 0
				})
			}
		}
		wires[3].Heal()
		harness.CloseWithin(t, 10*time.Second, locks[3])
	})
}
