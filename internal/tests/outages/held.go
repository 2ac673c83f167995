package outages

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// held is a lock and a permit that are held while something happens, each with
// somebody who waits for it. The TTL is long enough for all that happens here.
type held struct {
	*crowd
	leases   []*heldOne
	overlaps int // leases that the next had before the first was told
	since    time.Time
}

type heldOne struct {
	name, holders string
	ctx           context.Context
	token         uint64
	release       func() error
	deadline      func() time.Time
	told          chan struct{} // its Context has ended
	lostAt        time.Time     // when
	lost          bool
	next          chan error // what the waiter was told
	after         uint64     // the waiter's token
	nextAt        time.Time  // when the waiter was granted it
}

const (
	longTTL = 6 * time.Second
	longKey = "long"
)

func (c *crowd) hold() *held {
	c.Helper()
	h := &held{crowd: c, since: time.Now()}
	m, s := c.mutex(longTTL), c.semaphore(longTTL)
	l := redistest.Must(m.Lock(context.Background(), longKey))(c)
	p := redistest.Must(s.AcquireN(context.Background(), longKey, limit))(c)
	one := &heldOne{name: "lock", holders: c.part("mtx", longKey, "holders"), ctx: l.Context(), token: l.Token(), deadline: l.Deadline, release: l.Unlock}
	two := &heldOne{name: "permits", holders: c.part("sem", longKey, "holders"), ctx: p.Context(), deadline: p.Deadline, release: p.Release}
	h.leases = []*heldOne{one, two}
	m2, s2 := c.mutex(longTTL), c.semaphore(longTTL)
	one.wait(c.Context(), func(ctx context.Context) (func() error, error) {
		l, err := m2.Lock(ctx, longKey)
		if err != nil {
			return nil, err
		}
		one.nextAt, one.after = time.Now(), l.Token()
		redistest.Expect(c, c.guard.Set(ctx, longKey, one.after, "next", 0), nil, "the next holder's guarded write: %v")
		return l.Unlock, nil
	})
	two.wait(c.Context(), func(ctx context.Context) (func() error, error) {
		p, err := s2.AcquireN(ctx, longKey, limit)
		if err != nil {
			return nil, err
		}
		two.nextAt = time.Now()
		return p.Release, nil
	})
	for kind, one := range map[string]*heldOne{"mtx": one, "sem": two} {
		c.until(func() error {
			if n, err := c.admin.ZCard(context.Background(), c.part(kind, longKey, "queue")).Result(); err != nil || n != 1 {
				return errors.Join(err, errors.New("nobody waits"))
			}
			return nil
		})
		one.told = make(chan struct{})
		c.all.Go(func() {
			<-one.ctx.Done()
			one.lostAt = time.Now()
			close(one.told)
		})
	}
	return h
}

// wait asks again where Redis could not be asked.
func (o *heldOne) wait(ctx context.Context, acquire func(context.Context) (func() error, error)) {
	o.next = make(chan error, 1)
	go func() {
		for {
			release, err := acquire(ctx)
			if err == nil {
				// What is handed over is confirmed only by a renewal: a process that
				// did not run for two seconds right then has lost it again.
				if err = release(); errors.Is(err, leasehold.ErrLost) {
					err = nil
				}
			} else if errors.Is(err, leasehold.ErrUnavailable) && ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			o.next <- err
			return
		}
	}()
}

// keptOrTold: a lease whose Context goes on is held in Redis too, and released without an
// error; a holder that was told has lost it. Each waiter is served. It returns how many
// were kept.
func (h *held) keptOrTold() (kept int) {
	h.Helper()
	h.Logf("held for %v", time.Since(h.since))
	for _, o := range h.leases {
		if o.ctx.Err() == nil {
			kept++
			h.until(func() error { // in a Cluster the client may not have found the new primary yet
				n, err := h.admin.ZCard(context.Background(), o.holders).Result()
				if err != nil && o.ctx.Err() == nil {
					return err
				}
				if err == nil && n == 0 && o.ctx.Err() == nil { // not told meanwhile
					h.Errorf("the %s: held, and Redis knows nothing of it", o.name)
				}
				return nil
			})
			redistest.Expect(h, o.release(), nil, "release of a %s that was kept: %v", o.name)
		} else {
			<-o.told
			o.lost = true
			h.Logf("the %s: %v", o.name, context.Cause(o.ctx))
			if err := context.Cause(o.ctx); !errors.Is(err, leasehold.ErrLost) {
				h.Errorf("the %s's Context: %v; want ErrLost", o.name, err)
			}
			if err := o.release(); !errors.Is(err, leasehold.ErrLost) {
				h.Errorf("release of a %s that was lost: %v; want ErrLost", o.name, err)
			}
		}
	}
	for _, o := range h.leases {
		select {
		case err := <-o.next:
			if err != nil {
				h.Errorf("the waiter for the %s: %v", o.name, err)
			}
			if !o.lost || !o.nextAt.Before(o.lostAt) {
				break
			}
			h.Logf("the next holder had the %s %v before the first was told", o.name, o.lostAt.Sub(o.nextAt))
			h.overlaps++
		case <-time.After(patience):
			h.Errorf("the waiter for the %s waits on", o.name)
		}
	}
	lock := h.leases[0]
	redistest.Check(h, lock.after > lock.token, "the waiter has token %d, the holder had %d", lock.after, lock.token)
	err := h.guard.Set(context.Background(), longKey, lock.token, "stale", 0)
	redistest.Check(h, errors.Is(err, leasehold.ErrFenced), "a guarded write of the first holder: %v; want ErrFenced", err)
	h.Logf("%d of %d held leases were kept", kept, len(h.leases))
	return kept
}

// allTold waits until both holders have been told by a renewal that they have
// lost, as they are to be within a third of the TTL after that moment.
func (h *held) allTold(since time.Time) {
	h.Helper()
	for _, o := range h.leases {
		select {
		case <-o.told:
			took := o.lostAt.Sub(since)
			h.Logf("the %s's holder was told %v after that", o.name, took)
			// A third of the TTL; without the renewal it were at the deadline.
			late := o.lostAt.Sub(o.deadline())
			redistest.Check(h, late < 0, "the %s's holder was told %v after its own deadline; want by a renewal, within %v", o.name, late, longTTL/3)
		case <-time.After(patience):
			h.Fatalf("the %s's holder is told nothing", o.name)
		}
	}
}
