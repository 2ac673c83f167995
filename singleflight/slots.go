package singleflight

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/lease"
)

// lookForRedisEvery is how often a load that waits for a slot asks whether Redis is back.
const lookForRedisEvery = 250 * time.Millisecond

// errAskedAgain is why a loader was not called whose callers ask Redis again.
var errAskedAgain = errors.New("its callers ask Redis again")

// callWithinMaxLoads calls the loader under one permit of MaxLoads and in one slot of this
// process, if there is such a bound. While Redis is away a load has no permit under
// LoadLocally, and then the slot alone bounds it. The leases are renewed meanwhile.
func (d *load[T]) callWithinMaxLoads() product[T] {
	if d.g.permits == nil {
		return d.callLoader()
	}
	for {
		giveBack, away, err := d.takePermit()
		if err != nil {
			return product[T]{refused: err}
		}
		isBack, err := d.takeSlot(away)
		if err == nil && !isBack {
			return d.callInSlot(giveBack)
		}
		if giveBack != nil {
			d.g.active.Go(giveBack)
		}
		if err == nil && d.askAgain() {
			err = errAskedAgain
		}
		if err != nil {
			return product[T]{refused: err}
		}
	}
}

// takePermit takes a permit, and returns the function that gives it back. The function is nil if
// the load goes on without a permit. away says that it does since Redis is away.
func (d *load[T]) takePermit() (giveBack func(), away bool, err error) {
	g := d.g
	locally := g.cfg.OnUnavailable == LoadLocally
	// The ctx ends with that of the load and has no values: code of the first caller could end this goroutine, for which others wait.
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	defer context.AfterFunc(d.ctx, func() { end(context.Cause(d.ctx)) })()
	if locally {
		if g.permits.Client().Reachable(ctx, g.permitKey) != nil {
			return nil, true, context.Cause(d.ctx)
		}
		var stop context.CancelFunc
		ctx, stop = g.permits.Client().WhileReachable(ctx, g.permitKey)
		defer stop()
	}
	permit := new(lease.Lease)
	a := lease.Attempt{Op: "load", Permits: 1, Limit: g.cfg.MaxLoads, Wait: true, Parent: context.Background()}
	_, err = g.permits.Acquire(ctx, a, permit)
	switch {
	case err == nil:
		// In the background, because Redis may be away when the load ends.
		return func() { _ = permit.Release("load") }, false, nil
	case d.ctx.Err() != nil || !locally || g.closed.Load():
		return nil, false, errors.Join(inner(err)...)
	}
	return nil, ctx.Err() != nil || g.permits.Client().Away(g.permitKey), nil
}

// takeSlot takes a slot of this process. isBack says that it did not, because a load that has
// no permit since Redis was away may have one now.
func (d *load[T]) takeSlot(wasAway bool) (isBack bool, err error) {
	g := d.g
	select {
	case g.slots <- struct{}{}:
		return false, nil
	default:
	}
	var back <-chan struct{}
	if wasAway { // it may be back already, and the wait may be long
		key := g.permitKey
		if value := d.flights[0].value; g.manager.Client().Away(value) {
			key = value // of another server of a Cluster: the callers ask that again first
		}
		ctx, stop := context.WithCancel(d.ctx)
		defer stop()
		back = d.lookForRedis(ctx, key)
	}
	select {
	case g.slots <- struct{}{}:
		return false, nil
	case <-back:
		return true, nil
	case <-g.manager.Closing():
		return false, leasehold.ErrClosed
	case <-d.ctx.Done():
		return false, context.Cause(d.ctx)
	}
}

// lookForRedis returns a channel that is closed when the server of key is back. It has a goroutine of its
// own, because a load that looks itself would lose its place in the line for a slot.
func (d *load[T]) lookForRedis(ctx context.Context, key string) <-chan struct{} {
	back := make(chan struct{})
	client := d.g.manager.Client()
	d.g.active.Go(func() {
		for client.Reachable(ctx, key) != nil {
			select {
			case <-time.After(lookForRedisEvery):
			case <-ctx.Done():
				return
			}
		}
		close(back)
	})
	return back
}

// callInSlot calls the loader, in the slot that the load has. The slot and the permit bound
// what the origin has to do. So they are kept until the loader has returned, also after
// LoadTimeout.
func (d *load[T]) callInSlot(giveBack func()) product[T] {
	g := d.g
	var freed sync.Once // no OnceFunc, which panics if a hook of the client ends the goroutine of giveBack
	free := func() {
		freed.Do(func() {
			<-g.slots
			if giveBack != nil {
				giveBack()
			}
		})
	}
	defer func() {
		returned := d.returned // nil: the loader was not called
		g.active.Go(func() {
			if returned != nil {
				<-returned
			}
			free()
		})
	}()
	// A revoked load may ignore its ctx. It must not keep others from loading.
	stop := context.AfterFunc(d.ctx, func() {
		if errors.Is(context.Cause(d.ctx), leasehold.ErrRevoked) {
			free()
		}
	})
	defer stop()
	return d.callLoader()
}

// askAgain makes the requests of the load ask Redis, together. It returns false if the load does
// not run only because Redis could not be asked. Otherwise it would run without coordination
// long after the outage.
func (d *load[T]) askAgain() bool {
	g := d.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.ContainsFunc(d.flights, func(f *flight[T]) bool { return f.leased || f.alone || f.tooLargeMark != "" }) {
		return false
	}
	var open []*request[T]
	for _, f := range d.flights {
		open = append(open, f.takeRequests()...)
	}
	switch {
	case g.closed.Load():
		answer(open, outcome[T]{errs: []error{leasehold.ErrClosed}})
	case len(open) > 0:
		g.join(open, d.by) // open may be of several calls, and their loaders know only their own keys
	}
	return true
}
