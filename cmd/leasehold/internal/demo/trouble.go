package demo

import (
	"context"
	"errors"
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

// trouble is what is wrong in the fleet.
type trouble struct {
	backups []*mutex.Mutex // the first one's holder hangs
	imports *semaphore.Semaphore
	prices  *singleflight.Group[string]
}

const (
	importsTotal = 10
	// hangTTL is short, so that the holder that hangs stands out after 20 s.
	hangTTL = 2 * time.Second
)

func (x *trouble) open(rdb redis.UniversalClient, prefix string) error {
	var errs []error
	for _, label := range []string{"node-3", "node-1", "node-2"} {
		m, err := mutex.New(rdb, mutex.Config{Name: "jobs", Label: label, Prefix: prefix, TTL: hangTTL})
		x.backups, errs = append(x.backups, m), append(errs, err)
	}
	var err error
	x.imports, err = semaphore.New(rdb, semaphore.Config{Name: "imports", Label: "node-4", Prefix: prefix, Limit: importsTotal, Total: importsTotal, TTL: 10 * time.Second})
	errs = append(errs, err)
	x.prices, err = singleflight.New(rdb, singleflight.Config[string]{Name: "prices", Label: "node-2", Prefix: prefix, TTL: 10 * time.Second, ErrorTTL: 8 * time.Second})
	return errors.Join(append(errs, err)...)
}

func (x *trouble) handles() []handle {
	all := []handle{x.imports, x.prices}
	for _, m := range x.backups {
		all = append(all, m)
	}
	return all
}

var errPrices = errors.New("the price service answers 503")

// misbehave starts what goes wrong until ctx ends.
func (f *fleet) misbehave(ctx context.Context) {
	hung := make(chan struct{})
	f.wg.Go(func() {
		began := sync.OnceFunc(func() { close(hung) })
		defer began()
		f.again(ctx, func() {
			l, err := f.trouble.backups[0].Lock(ctx, "backup")
			if err != nil {
				return
			}
			began()
			defer l.Unlock()
			// It does not look at its Context when it is revoked. A lease that was lost, as on
			// a machine that stood still, is not what the demo is to show: it is taken again.
			select {
			case <-l.Context().Done():
				if errors.Is(context.Cause(l.Context()), leasehold.ErrRevoked) {
					<-ctx.Done()
				}
			case <-ctx.Done():
			}
		})
	})
	for _, m := range f.trouble.backups[1:] {
		f.wg.Go(func() {
			<-hung
			f.again(ctx, func() { f.job(ctx, m, "backup") })
		})
	}
	// One tenant has more work at a time than all permits, and each piece takes long.
	for range 2 * importsTotal {
		f.work(ctx, func() { f.imports(ctx, "acme", 20*time.Second) })
	}
	for _, tenant := range []string{"globex", "initech", "hooli"} {
		f.work(ctx, func() { f.imports(ctx, tenant, time.Second) })
	}
	f.work(ctx, func() {
		_, _ = f.trouble.prices.Do(ctx, "eur", func(context.Context) (string, error) { return "", errPrices })
	})
}

// again does something again and again until ctx ends.
func (f *fleet) again(ctx context.Context, do func()) {
	for ctx.Err() == nil {
		do()
		f.pause(ctx, 50*time.Millisecond, 800*time.Millisecond)
	}
}

// imports holds a permit of a tenant for about as long as that.
func (f *fleet) imports(ctx context.Context, tenant string, long time.Duration) {
	l, err := f.trouble.imports.Acquire(ctx, tenant)
	if err != nil {
		return
	}
	f.pause(ctx, long/2, long)
	_ = l.Release()
}
