package localturns

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A process that was held up between the grant and the first turn gives the lease back: that
// turn, too, would begin later than LocalFor after the grant.
func TestFirstTurnDoesNotBeginAfterLocalFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		m := newManager(t, client(), keys.Mutex, lease.Config{})
		for key, c := range map[string]struct {
			heldUp time.Duration
			begins bool
		}{"soon": {time.Second, true}, "late": {time.Second + 1, false}} {
			ln := &line{desk: &desk{h: &Handle{m: m, cfg: Config{LocalFor: time.Second}}}}
			v := &visit{line: ln, lease: new(lease.Lease)}
			a := lease.Attempt{Op: "lock", Key: key, Permits: 1, Limit: 1, Turns: v}
			redistest.WantErr(t, redistest.ErrorOf(m.Acquire(t.Context(), a, v.lease)))
			redistest.CheckNow(t, ln.admit(v, false), "the lease has ended")
			ln.push(&Turn{line: ln})
			time.Sleep(c.heldUp)
			redistest.Expect(t, ln.pass(v), c.begins, "%s: the turn begins: %v", key)
		}
	})
}

// Once a place is granted, it has no state of the queue any more, and the line may not know of the grant yet. A caller that
// gives up at that moment is told the last state.
func TestBusyAfterThePlaceWasGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		m := newManager(t, client(), keys.Mutex, lease.Config{})
		a := lease.Attempt{Op: "lock", Key: "k", Permits: 1, Limit: 1, Wait: true}
		var held, next lease.Lease
		redistest.WantErr(t, redistest.ErrorOf(m.Acquire(t.Context(), a, &held)))
		p := &place{}
		ln := &line{desk: &desk{h: &Handle{m: m}}, name: lineName{permits: 1, limit: 1}, places: []*place{p}}
		ln.onQueued(p, redistest.Must(m.Enter(t.Context(), a, nil, &next))(t))
		redistest.WantErr(t, held.Release("unlock"))
		redistest.WantErr(t, p.queued.Await(t.Context(), &next))
		busy := ln.busy()
		redistest.Check(t, busy.Limit == 1 && busy.InUse == 1, "it is told: %v", busy)
		redistest.WantErr(t, next.Release("unlock"))
	})
}

// While a caller stands in the line, a request that does not wait is busy without a call. It is told first that its ctx has
// ended, or that the handle is closed.
func TestRequestThatDoesNotWaitBesideALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := redistest.Bubble(t)
		server.SetError("LOADING it is not to be asked")
		m := newManager(t, client(), keys.Mutex, lease.Config{})
		h := New(m, Config{LocalFor: time.Second})
		ln := redistest.Must(h.lock("k", 1, 1))(t)
		ln.push(&Turn{line: ln})
		ln.mu.Unlock()
		try := func(ctx context.Context) error {
			return redistest.ErrorOf(h.Acquire(ctx, lease.Attempt{Op: "try lock", Key: "k", Permits: 1, Limit: 1}, new(lease.Lease)))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		redistest.WantErr(t, try(t.Context()), leasehold.ErrBusy, redistest.Not(leasehold.ErrUnavailable))
		redistest.WantErr(t, try(ended), context.Canceled, redistest.Not(leasehold.ErrBusy))
		m.Refuse()
		redistest.WantErr(t, try(t.Context()), leasehold.ErrClosed, redistest.Not(leasehold.ErrBusy))
	})
}

// A caller whose place is refused in the moment in which its ctx ends is told of the refusal: Redis did not say that
// the lock is busy.
func TestRefusalInTheMomentInWhichCtxEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		m := newManager(t, client(), keys.Mutex, lease.Config{})
		refused := errors.New("refused")
		for range 50 { // a select takes any of its cases
			p := &place{}
			ln := &line{desk: &desk{h: &Handle{m: m}}, name: lineName{permits: 1, limit: 1}, most: 1, places: []*place{p}}
			waits := &Turn{line: ln, op: "lock"}
			ln.push(waits)
			ln.heard = time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ln.mu.Lock()
				defer ln.mu.Unlock()
				ended <- waits.await(ctx, nil)
			}()
			synctest.Wait()
			ln.mu.Lock()
			cancel()
			ln.onPlaceDone(p, nil, refused, true)
			ln.mu.Unlock()
			redistest.Require(t, <-ended, refused, "it is told: %v")
		}
	})
}

// Places that have been cancelled, and have not gone yet, do not count: as many live ones stay as turns wait.
func TestCancelExcessCountsLivePlaces(t *testing.T) {
	for name, c := range map[string]struct {
		cancelled []bool // in the order of their coming
		turns     int
		want      int // live places
	}{
		"the live one is the newest": {[]bool{true, false}, 1, 1},
		"the live one is the oldest": {[]bool{false, true}, 1, 1},
		"no turn waits":              {[]bool{false, true}, 0, 0},
		"one of two is too many":     {[]bool{false, true, false}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ln := &line{desk: &desk{}, length: c.turns}
			for _, cancelled := range c.cancelled {
				ln.places = append(ln.places, &place{cancel: func() {}, cancelled: cancelled})
			}
			ln.cancelExcess()
			live := 0
			for _, p := range ln.places {
				if !p.cancelled {
					live++
				}
			}
			redistest.Expect(t, live, c.want, "%d live places are left")
		})
	}
}
