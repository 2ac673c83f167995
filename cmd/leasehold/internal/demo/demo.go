// Package demo is a small fleet at work, so that every view has something to show, and an
// engineer on call something to put right.
package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Trouble is what an engineer on call may find in the demo, and how it is put right.
const Trouble = `Three things are wrong in it:
  a holder hangs            lock jobs/backup: see ls --sort held, show, revoke
  a tenant crowds others    permits imports, tenant acme: see show, set-limit
  a load fails              cache prices/eur: see ls --family prices
`

const (
	hosts        = 4 // as many handles of each family
	importsTotal = 10
	// hangTTL is short, so that the holder that hangs stands out after 20 s.
	hangTTL = 2 * time.Second
)

var (
	customers = []string{"acme", "globex", "initech", "umbrella", "hooli", "stark", "wayne", "wonka", "tyrell", "cyberdyne", "soylent", "dunder"}
	jobs      = []string{"nightly-report", "sync-ledger", "rotate-keys", "rebuild-index", "send-digest"}
)

type fleet struct {
	ctx     context.Context
	rdb     redis.UniversalClient
	prefix  string // of all keys
	handles []interface{ Close(context.Context) error }
	errs    []error
	workers []func() // they begin when all handles are made
}

// Run works until ctx ends, and gives everything back.
func Run(ctx context.Context, rdb redis.UniversalClient, prefix string) error {
	f := &fleet{ctx: ctx, rdb: rdb, prefix: prefix}
	for i := range hosts {
		f.host(fmt.Sprintf("node-%d", i+1))
	}
	f.hang()
	f.crowd()
	f.fail()
	locks := f.locks("node-1", hangTTL)
	if err := errors.Join(f.errs...); err != nil {
		return err
	}
	// The fleet says nothing of what fails, and all does without the rights.
	if l, err := locks.TryLock(ctx, jobs[0]); err == nil {
		_ = l.Unlock()
	} else if redis.IsPermissionError(err) {
		return err
	}
	var all sync.WaitGroup
	for _, work := range f.workers {
		all.Go(work)
	}
	all.Wait()
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	errs := make([]error, len(f.handles))
	for i, handle := range f.handles {
		all.Go(func() { errs[i] = handle.Close(closing) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (f *fleet) permits(cfg semaphore.Config) *semaphore.Semaphore {
	cfg.Prefix, cfg.TTL = f.prefix, 10*time.Second
	s, err := semaphore.New(f.rdb, cfg)
	f.handles, f.errs = append(f.handles, s), append(f.errs, err)
	return s
}

func (f *fleet) locks(label string, ttl time.Duration) *mutex.Mutex {
	m, err := mutex.New(f.rdb, mutex.Config{Name: "jobs", Label: label, Prefix: f.prefix, TTL: ttl})
	f.handles, f.errs = append(f.handles, m), append(f.errs, err)
	return m
}

func (f *fleet) cache(cfg singleflight.Config[string]) *singleflight.Group[string] {
	cfg.Prefix = f.prefix
	g, err := singleflight.New(f.rdb, cfg)
	f.handles, f.errs = append(f.handles, g), append(f.errs, err)
	return g
}

func (f *fleet) work(n int, do func()) {
	for range n {
		f.workers = append(f.workers, func() { f.again(do) })
	}
}

func (f *fleet) again(do func()) {
	for f.ctx.Err() == nil {
		do()
		f.pause(50*time.Millisecond, 800*time.Millisecond)
	}
}

// pause takes between least and most, mostly little.
func (f *fleet) pause(least, most time.Duration) {
	x := rand.Float64()
	select {
	case <-time.After(least + time.Duration(x*x*float64(most-least))):
	case <-f.ctx.Done():
	}
}

func (f *fleet) hold(s *semaphore.Semaphore, key string, n int, least, most time.Duration) {
	if l, err := s.AcquireN(f.ctx, key, n); err == nil {
		f.pause(least, most)
		_ = l.Release()
	}
}

func few(n int) int {
	x := rand.Float64()
	return int(x * x * float64(n))
}

// host exports for customers, some of which want more than others, does jobs that one host does
// at a time, and renders pages.
func (f *fleet) host(label string) {
	exports := f.permits(semaphore.Config{Name: "exports", Label: label, Limit: 5, LimitFor: func(key string) int {
		return map[string]int{"acme": 8, "hooli": 2, "wonka": 1}[key]
	}})
	f.work(6, func() {
		key, n := customers[few(len(customers))], 1
		if rand.IntN(6) == 0 && key != "wonka" {
			n = 2
		}
		f.hold(exports, key, n, 300*time.Millisecond, 6*time.Second)
	})
	locks := f.locks(label, 10*time.Second)
	for _, key := range jobs {
		f.work(1, func() { f.job(locks, key, 15*time.Second) })
	}
	pages := f.cache(singleflight.Config[string]{Name: "pages", Label: label, TTL: 12 * time.Second, StaleFor: 20 * time.Second, MaxLoads: 4})
	f.work(4, func() {
		key := fmt.Sprintf("/%s/%d", []string{"product", "search", "home"}[rand.IntN(3)], few(30))
		_, _ = pages.Do(f.ctx, key, func(ctx context.Context) (string, error) {
			f.pause(100*time.Millisecond, 3*time.Second)
			return fmt.Sprintf("%*d", 500+rand.IntN(20000), 1), ctx.Err()
		})
	})
}

func (f *fleet) job(m *mutex.Mutex, key string, most time.Duration) {
	l, err := m.Lock(f.ctx, key)
	if err != nil {
		return
	}
	f.pause(time.Second, most)
	_ = l.Unlock()
	f.pause(0, 8*time.Second)
}

// hang has a holder hang, and two others wait for it.
func (f *fleet) hang() {
	hung := make(chan struct{})
	first := f.locks("node-3", hangTTL)
	f.workers = append(f.workers, func() {
		began := sync.OnceFunc(func() { close(hung) })
		defer began()
		f.again(func() {
			l, err := first.Lock(f.ctx, "backup")
			if err != nil {
				return
			}
			began()
			defer l.Unlock()
			// It does not look at its Context when it is revoked. A lease that was lost, as on
			// a machine that stood still, is not what the demo is to show: it is taken again.
			<-l.Context().Done()
			if errors.Is(context.Cause(l.Context()), leasehold.ErrRevoked) {
				<-f.ctx.Done()
			}
		})
	})
	for _, label := range []string{"node-1", "node-2"} {
		m := f.locks(label, hangTTL)
		f.workers = append(f.workers, func() {
			<-hung
			f.again(func() { f.job(m, "backup", 2*time.Second) })
		})
	}
}

// crowd has a tenant with more work at a time than all permits, of which each piece takes long.
func (f *fleet) crowd() {
	imports := f.permits(semaphore.Config{Name: "imports", Label: "node-4", Limit: importsTotal, Total: importsTotal})
	f.work(2*importsTotal, func() { f.hold(imports, "acme", 1, 10*time.Second, 20*time.Second) })
	for _, tenant := range []string{"globex", "initech", "hooli"} {
		f.work(1, func() { f.hold(imports, tenant, 1, time.Second/2, time.Second) })
	}
}

var errPrices = errors.New("the price service answers 503")

func (f *fleet) fail() {
	prices := f.cache(singleflight.Config[string]{Name: "prices", Label: "node-2", TTL: 10 * time.Second, ErrorTTL: 8 * time.Second})
	f.work(1, func() {
		_, _ = prices.Do(f.ctx, "eur", func(context.Context) (string, error) { return "", errPrices })
	})
}
