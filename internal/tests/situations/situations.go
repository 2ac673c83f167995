// Package situations brings handles into the situations that an Observer is told of. Each says which events it must
// be told, so that the events themselves and what is made of them can be tested in the same situations.
package situations

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Situation is one situation, in a bubble of its own.
type Situation struct {
	Name string
	// Want is how often each event must be told in it. Other kinds of events may occur, and renewals more often.
	Want map[Told]int
	run  func(s *stage)
}

// Told is an event as it is counted.
type Told struct {
	Kind    leasehold.EventKind
	Type    string
	Outcome string
}

// stage is what a situation takes place on.
type stage struct {
	*testing.T
	a, b     *redis.Client // of two processes
	wire     *harness.Wire // of a
	observer leasehold.Observer
	logger   *slog.Logger
	opened   []harness.Handle
}

// Run brings handles with this Observer and Logger into the situation, in a bubble, and
// calls then when all handles are closed.
func (s Situation) Run(t *testing.T, observer leasehold.Observer, logger *slog.Logger, then func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := leaseholdtest.Clients(t, 2)
		on := &stage{T: t, a: all[0].(*redis.Client), b: all[1].(*redis.Client), observer: observer, logger: logger, wire: &harness.Wire{}}
		on.a.AddHook(on.wire)
		s.run(on)
		for _, h := range on.opened {
			on.must(h.Close(t.Context()))
		}
		synctest.Wait()
		then()
	})
}

func (s *stage) must(err error) {
	s.Helper()
	redistest.WantErr(s, err)
}

func (s *stage) semaphore(cfg semaphore.Config) *semaphore.Semaphore {
	cfg.Name, cfg.Observer, cfg.Logger = "caps", s.observer, s.logger
	cfg.Limit = max(1, cfg.Limit)
	return opened(s, redistest.Must(semaphore.New(s.a, cfg))(s))
}

func (s *stage) mutex(cfg mutex.Config) *mutex.Mutex {
	cfg.Name, cfg.Observer, cfg.Logger = "orders", s.observer, s.logger
	return opened(s, redistest.Must(mutex.New(s.a, cfg))(s))
}

func (s *stage) cache(rdb redis.UniversalClient, cfg singleflight.Config[string]) *singleflight.Group[string] {
	cfg.Name, cfg.Observer, cfg.Logger = "pages", s.observer, s.logger
	if cfg.TTL == 0 {
		cfg.TTL, cfg.Jitter = time.Minute, -1
	}
	return opened(s, redistest.Must(singleflight.New(rdb, cfg))(s))
}

// opened is a handle that Run closes.
func opened[H harness.Handle](s *stage, h H) H {
	s.opened = append(s.opened, h)
	return h
}

var errOrigin = errors.New("origin is down")

// loads makes a loader that returns v and err, and counts.
func loads(n *atomic.Int64, v string, err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		n.Add(1)
		return v, err
	}
}
