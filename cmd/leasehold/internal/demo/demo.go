// Package demo is a small fleet at work, so that every view has something to
// show.
package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Options say how large the fleet is.
type Options struct {
	Prefix string
	Hosts  int // handles of each family, as many processes would have
	// Pace stretches or shortens all holds and pauses; 1 = as on a calm day.
	Pace float64
}

var (
	customers = []string{"acme", "globex", "initech", "umbrella", "hooli", "stark", "wayne", "wonka", "tyrell", "cyberdyne", "soylent", "dunder"}
	jobs      = []string{"nightly-report", "sync-ledger", "rotate-keys", "rebuild-index", "send-digest"}
)

// fleet is what all of the demo's workers share.
type fleet struct {
	o       Options
	exports []*semaphore.Semaphore
	jobs    []*mutex.Mutex
	pages   []*singleflight.Group[string]
	trouble trouble
	wg      sync.WaitGroup
}

// handle is what all handles have in common.
type handle interface{ Close(context.Context) error }

// Run works until ctx ends, and gives everything back.
func Run(ctx context.Context, rdb redis.UniversalClient, o Options) error {
	f := &fleet{o: o}
	if err := f.open(rdb); err != nil {
		return err
	}
	for i := range o.Hosts {
		for range 6 {
			f.work(ctx, func() { f.export(ctx, f.exports[i]) })
		}
		for _, key := range jobs {
			f.work(ctx, func() { f.job(ctx, f.jobs[i], key) })
		}
		for range 4 {
			f.work(ctx, func() { f.page(ctx, f.pages[i]) })
		}
	}
	f.misbehave(ctx)
	<-ctx.Done()
	f.wg.Wait()
	return f.close()
}

func (f *fleet) open(rdb redis.UniversalClient) error {
	var errs []error
	for i := range f.o.Hosts {
		label := fmt.Sprintf("node-%d", i+1)
		s, err := semaphore.New(rdb, semaphore.Config{Name: "exports", Label: label, Prefix: f.o.Prefix, Limit: 5, TTL: 10 * time.Second, LimitFor: func(key string) int {
			return map[string]int{"acme": 8, "hooli": 2, "wonka": 1}[key]
		}})
		errs = append(errs, err)
		m, err := mutex.New(rdb, mutex.Config{Name: "jobs", Label: label, Prefix: f.o.Prefix, TTL: 10 * time.Second})
		errs = append(errs, err)
		g, err := singleflight.New(rdb, singleflight.Config[string]{Name: "pages", Label: label, Prefix: f.o.Prefix, TTL: 12 * time.Second, StaleFor: 20 * time.Second, MaxLoads: 4})
		errs = append(errs, err)
		f.exports, f.jobs, f.pages = append(f.exports, s), append(f.jobs, m), append(f.pages, g)
	}
	return errors.Join(append(errs, f.trouble.open(rdb, f.o.Prefix))...)
}

// work does something in a goroutine, again and again until ctx ends.
func (f *fleet) work(ctx context.Context, do func()) {
	f.wg.Go(func() { f.again(ctx, do) })
}

// pause takes between least and most, mostly little.
func (f *fleet) pause(ctx context.Context, least, most time.Duration) {
	x := rand.Float64()
	d := time.Duration(f.o.Pace * (float64(least) + x*x*float64(most-least)))
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// export is a job of a customer's; some customers want more than others.
func (f *fleet) export(ctx context.Context, s *semaphore.Semaphore) {
	x := rand.Float64()
	key := customers[int(x*x*float64(len(customers)))]
	n := 1
	if rand.IntN(6) == 0 && key != "wonka" {
		n = 2
	}
	l, err := s.AcquireN(ctx, key, n)
	if err != nil {
		return
	}
	f.pause(ctx, 300*time.Millisecond, 6*time.Second)
	_ = l.Release()
}

func (f *fleet) job(ctx context.Context, m *mutex.Mutex, key string) {
	l, err := m.Lock(ctx, key)
	if err != nil {
		return
	}
	f.pause(ctx, time.Second, 15*time.Second)
	_ = l.Unlock()
	f.pause(ctx, 0, 8*time.Second)
}

func (f *fleet) page(ctx context.Context, g *singleflight.Group[string]) {
	x := rand.Float64()
	key := fmt.Sprintf("/%s/%d", []string{"product", "search", "home"}[rand.IntN(3)], int(x*x*30))
	_, _ = g.Do(ctx, key, func(ctx context.Context) (string, error) {
		f.pause(ctx, 100*time.Millisecond, 3*time.Second)
		return fmt.Sprintf("%*d", 500+rand.IntN(20000), 1), ctx.Err()
	})
}

func (f *fleet) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	all := f.trouble.handles()
	for i := range f.o.Hosts {
		all = append(all, f.exports[i], f.jobs[i], f.pages[i])
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, handle := range all {
		wg.Go(func() { errs[i] = handle.Close(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
