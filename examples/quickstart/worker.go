package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/semaphore"
)

// worker is a worker process: it runs one job after the other for each tenant.
// An order makes its next job for the victim's tenant a long one.
func worker(ctx context.Context, rdb *redis.Client, name string, _ int, orders <-chan string) error {
	caps, err := semaphore.New(rdb, semaphore.Config{
		Name:     name,
		Limit:    1,
		LimitFor: capOf,
		TTL:      permitTTL,
	})
	if err != nil {
		return err
	}
	// One loop a tenant and worker: so a worker that is killed while it holds a
	// tenant's permit leaves no dead waiter in that tenant's queue, which could
	// hold up the queue for two seconds more.
	loops, ctx := errgroup.WithContext(ctx)
	for i, t := range tenants {
		var longer <-chan string
		if t.name == victimTenant {
			longer = orders
		}
		loops.Go(func() error { return jobs(ctx, caps, t.name, i*1_000_000, longer) })
	}
	err = loops.Wait()

	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	return errors.Join(err, caps.Close(closing))
}

// jobs runs the jobs of one tenant until ctx ends. They are numbered from first.
func jobs(ctx context.Context, caps *semaphore.Semaphore, tenant string, first int, longer <-chan string) error {
	for job := first + 1; ctx.Err() == nil; job++ {
		emit(event{Kind: waits, Tenant: tenant, Job: job})
		lease, err := caps.Acquire(ctx, tenant)
		if err != nil {
			emit(event{Kind: quits, Tenant: tenant, Job: job})
			if ctx.Err() != nil {
				return nil
			}
			return err
		}

		takes := shortJob + rand.N(longJob-shortJob)
		select {
		case <-longer:
			takes = victimJob
		default:
		}
		emit(event{Kind: started, Tenant: tenant, Job: job, Takes: takes})
		cut := work(lease.Context(), takes)
		lost := cut && ctx.Err() == nil
		emit(event{Kind: ended, Tenant: tenant, Job: job, Cut: cut, Lost: lost})

		// A lease is lost where the machine stalls for longer than it lasts. Its
		// Context stopped the job then, and the figures tell whether in time.
		if err := lease.Release(); err != nil && !errors.Is(err, leasehold.ErrLost) {
			return err
		}
	}
	return nil
}

// work stands for the job, which stops when its lease does.
func work(ctx context.Context, takes time.Duration) (cut bool) {
	select {
	case <-time.After(takes):
		return false
	case <-ctx.Done():
		return true
	}
}
