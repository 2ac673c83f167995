package outages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// held is a lock and a permit that are held while something happens, each with
// a caller that waits for it. The TTL is long enough for all that happens here.
type held struct {
	*crowd
	leases []*heldOne
	since  time.Time
}

type heldOne struct {
	name, holders string
	lease
	token   uint64
	release func() error
	next    *harness.Call[struct{}] // of the waiter
	after   uint64                  // the waiter's token
}

const (
	longTTL = 6 * time.Second
	longKey = "long"
)

func (c *crowd) hold() *held {
	c.Helper()
	m, s, m2, s2 := c.mutex(longTTL), c.semaphore(longTTL, 0), c.mutex(longTTL), c.semaphore(longTTL, 0)
	l := redistest.Must(m.Lock(context.Background(), longKey))(c)
	p := redistest.Must(s.AcquireN(context.Background(), longKey, limit))(c)
	one := &heldOne{name: "lock", holders: c.part("mtx", longKey, "holders"), lease: l, token: l.Token(), release: l.Unlock}
	two := &heldOne{name: "permits", holders: c.part("sem", longKey, "holders"), lease: p, release: p.Release}
	h := &held{crowd: c, since: time.Now(), leases: []*heldOne{one, two}}
	one.next = c.turn(func(ctx context.Context) (func() error, error) {
		l, err := m2.Lock(ctx, longKey)
		if err != nil {
			return nil, err
		}
		one.after = l.Token()
		return l.Unlock, nil
	})
	two.next = c.turn(func(ctx context.Context) (func() error, error) {
		p, err := s2.AcquireN(ctx, longKey, limit)
		if err != nil {
			return nil, err
		}
		return p.Release, nil
	})
	for _, kind := range []string{"mtx", "sem"} {
		redistest.Eventually(c, "a waiter", func() bool { return c.admin.ZCard(c.Context(), c.part(kind, longKey, "queue")).Val() == 1 })
	}
	return h
}

// turn waits for a lease, and gives it back. It asks again where Redis could not be asked.
func (c *crowd) turn(acquire func(context.Context) (func() error, error)) *harness.Call[struct{}] {
	ctx := c.Context()
	return harness.Begin(c, func() error {
		release, err := acquire(ctx)
		for ; errors.Is(err, leasehold.ErrUnavailable) && ctx.Err() == nil; release, err = acquire(ctx) {
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			return err
		}
		// What is handed over is confirmed only by a renewal: a process that
		// did not run for two seconds right then has lost it again.
		if err = release(); errors.Is(err, leasehold.ErrLost) {
			return nil
		}
		return err
	})
}

// keptOrTold: a lease whose Context goes on is held in Redis too, and released without an error; a holder
// that was told has lost it. Each waiter is served. It returns how many were kept.
func (h *held) keptOrTold() (kept int) {
	h.Helper()
	h.Logf("held for %v", time.Since(h.since))
	for _, o := range h.leases {
		if o.Context().Err() != nil {
			h.Logf("the %s: %v", o.name, context.Cause(o.Context()))
			redistest.WantErr(h, context.Cause(o.Context()), leasehold.ErrLost)
			redistest.WantErr(h, o.release(), leasehold.ErrLost)
			continue
		}
		kept++
		harness.Until(h, patience, func() error { // in a Cluster the client may not have found the new primary yet
			n, err := h.admin.ZCard(context.Background(), o.holders).Result()
			if o.Context().Err() != nil { // told meanwhile
				return nil
			}
			redistest.Check(h, err != nil || n > 0, "the %s: held, and Redis knows nothing of it", o.name)
			return err
		})
		redistest.Expect(h, o.release(), nil, "release of a %s that was kept: %v", o.name)
	}
	for _, o := range h.leases {
		redistest.Expect(h, o.next.Within(patience, "the waiter for the "+o.name).Err, nil, "the waiter for the %s: %v", o.name)
	}
	lock := h.leases[0]
	redistest.Check(h, lock.after > lock.token, "the waiter has token %d, the holder had %d", lock.after, lock.token)
	h.Logf("%d of %d held leases were kept", kept, len(h.leases))
	return kept
}

// allTold waits until both holders have been told by a renewal that they have lost, and not at their deadline.
func (h *held) allTold() {
	h.Helper()
	for _, o := range h.leases {
		<-o.Context().Done()
		redistest.Check(h, time.Now().Before(o.Deadline()), "the %s's holder was told at its own deadline", o.name)
	}
}

// check ends the crowd. Its calls have judged what is promised whatever happens. It returns how often there
// was what is not promised through the loss of acknowledged writes, and must not be without: turns in
// another's, permits beyond the limit, and values that were loaded before an Invalidate was confirmed.
func (c *crowd) check() (overlaps int) {
	c.Helper()
	c.stop()
	for what, done := range c.done {
		c.Logf("%s: %d calls", what, done.n)
		redistest.Check(c, done.n > 0, "%s did too little to tell", what)
	}
	c.Logf("errors %v; %d overlaps", c.errs, c.overlaps)
	return c.overlaps
}

// recovered waits until a call of each kind that began after at has come to a good end.
func (c *crowd) recovered(at time.Time) {
	c.Helper()
	for what, done := range c.done {
		harness.Until(c, patience, func() error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if done.last.Before(at) {
				return fmt.Errorf("%s does not work again", what)
			}
			return nil
		})
	}
	c.Logf("all work again after %v", time.Since(at))
}

// work lets everybody go on for a while.
func (c *crowd) work() { time.Sleep(300 * time.Millisecond) }
