package localturns

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/nested"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// newManager makes a manager of locks, or of permits. It is closed when the test ends.
func newManager(t *testing.T, rdb redis.UniversalClient, kind keys.Kind, cfg lease.Config) *lease.Manager {
	cfg.Package, cfg.Family = "mutex", keys.Family{Kind: kind, Name: "n"}
	cfg.Protocol = permits.Family{Family: cfg.Family, Fenced: kind == keys.Mutex, Keeps: cfg.Keeps}
	m := redistest.Must(lease.New(rdb, cfg))(t)
	t.Cleanup(func() { redistest.NoError(t, m.Close(context.Background())) })
	return m
}

// keeping runs fn with a handle that keeps locks for a second, in a bubble.
func keeping(t *testing.T, fn func(t *testing.T, h *Handle, m *lease.Manager)) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		m := newManager(t, client(), keys.Mutex, lease.Config{TTL: 5 * time.Second, Keeps: true})
		h := New(m, Config{KeepFor: time.Second})
		defer h.StopKeeping()
		fn(t, h, m)
	})
}

var attempt = lease.Attempt{Op: "lock", Key: "k", Permits: 1, Limit: 1, Wait: true}

// turn takes the lock of the key "k" and gives it back.
func turn(t *testing.T, h *Handle) {
	t.Helper()
	taken := redistest.Must(h.Acquire(t.Context(), attempt, new(lease.Lease)))(t)
	time.Sleep(time.Microsecond) // a token is not ahead of the clock
	redistest.WantErr(t, taken.Release("unlock"))
}

// The clock of the moment decides whether a turn begins on a lease that rests, whatever the timer does.
func TestNoTurnBeginsAfterKeepFor(t *testing.T) {
	for rested, begins := range map[time.Duration]bool{time.Second - 1: true, time.Second: false} {
		keeping(t, func(t *testing.T, h *Handle, _ *lease.Manager) {
			turn(t, h)
			synctest.Wait()
			d := h.known("k")
			d.mu.Lock()
			d.kept.timer.Stop()
			d.mu.Unlock()
			time.Sleep(rested)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.kept.heard = time.Now()
			if got := d.lines[0].resume(t.Context(), "lock"); (got != nil) != begins {
				t.Errorf("after %v a turn begins: %v; want %v", rested, got != nil, begins)
			} else if begins {
				got.end(released, leasehold.ErrReleased)
			}
		})
	}
}

// Redis has forgotten two leases that rest. A request that finds one of them ended, before the
// desk was told so, begins its turn on the other: that one goes back after the turn all the same.
func TestLeaseThatWasFoundEndedEndsTheRestOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := redistest.Bubble(t)
		m := newManager(t, client(), keys.Semaphore, lease.Config{TTL: 5 * time.Second, Keeps: true})
		h := New(m, Config{KeepFor: time.Second})
		var turns []*Turn
		for range 2 {
			a := attempt
			a.Limit = 2
			turns = append(turns, redistest.Must(h.Acquire(t.Context(), a, new(lease.Lease)))(t))
		}
		for _, one := range turns {
			redistest.WantErr(t, one.Release("release"))
		}
		synctest.Wait()
		server.FlushAll()
		d := h.known("k")
		d.mu.Lock() // LeaseEnded waits for it
		_ = redistest.ErrorOf(turns[1].visit.lease.RenewAndCount(true))
		next := d.lines[0].resume(t.Context(), "acquire")
		d.mu.Unlock()
		redistest.CheckNow(t, next != nil && next.visit == turns[0].visit, "no turn began on the lease that nobody knows to have ended")
		synctest.Wait()
		redistest.WantErr(t, next.Release("release"), leasehold.ErrLost)
	})
}

// Close may begin in the moment of an acquisition from memory.
func TestAcquisitionFromMemoryLooksForClose(t *testing.T) {
	keeping(t, func(t *testing.T, h *Handle, m *lease.Manager) {
		turn(t, h)
		synctest.Wait()
		m.Refuse() // what Close begins with; the lease still rests
		redistest.WantErr(t, redistest.ErrorOf(h.Acquire(t.Context(), attempt, new(lease.Lease))), leasehold.ErrClosed)
	})
}

// A process that was not registered at its last enter may have missed a recall: what its earlier
// enters got does not rest any more.
func TestLeasesOfEarlierEntersGoBackIfARecallWasMissed(t *testing.T) {
	d := &desk{h: &Handle{cfg: Config{KeepFor: time.Second}}}
	d.kept.listening = true
	early := time.Now()
	d.kept.heard = early
	v := &visit{line: &line{desk: d}, grant: lease.Grant{Sent: early, Keepable: true}}
	redistest.CheckNow(t, d.mayRest(v, early), "the lease may not rest")
	d.kept.recalledAt = early.Add(time.Millisecond - 1)
	redistest.Check(t, !d.mayRest(v, early), "a lease of an enter that was sent before the recall came may rest")
}

// A lease comes to rest after a caller has looked for one, and before the caller joins the line: it serves the caller, and
// the Observer is told so.
func TestLeaseThatComesToRestAsACallerJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		var told endings
		m := newManager(t, client(), keys.Mutex, lease.Config{TTL: 5 * time.Second, Keeps: true, Observer: &told})
		h := New(m, Config{LocalFor: time.Second, KeepFor: time.Second})
		defer h.StopKeeping()
		first := redistest.Must(h.Acquire(t.Context(), attempt, new(lease.Lease)))(t)
		time.Sleep(time.Microsecond) // a token is not ahead of the clock
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		release := sync.OnceFunc(func() { redistest.NoError(t, first.Release("unlock")) })
		second := redistest.Must(h.Acquire(askedCtx{ctx, release}, attempt, new(lease.Lease)))(t)
		redistest.WantErr(t, second.Release("unlock"))
		redistest.Check(t, told.kept == 1 && len(told.outcomes) == 2, "%d grants from memory; holds ended with %v", told.kept, told.outcomes)
	})
}

// askedCtx calls asked when it is asked for a value.
type askedCtx struct {
	context.Context
	asked func()
}

func (c askedCtx) Value(key any) any { c.asked(); return c.Context.Value(key) }

// A recall that comes between the end of a turn and that of its Context does not end the Context:
// that calls the code of the caller's ctx, and the desk is locked.
func TestRecallEndsNoContext(t *testing.T) {
	keeping(t, func(t *testing.T, h *Handle, _ *lease.Manager) {
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		calls := new(atomic.Int32)
		taken := redistest.Must(h.Acquire(askedCtx{parent, func() { calls.Add(1) }}, attempt, new(lease.Lease)))(t)
		ctx := taken.Context()
		d := h.known("k")
		d.mu.Lock()
		taken.end(released, leasehold.ErrReleased)
		rests, before := taken.line.rest(taken.visit), calls.Load()
		d.recall()
		called := calls.Load() > before
		d.mu.Unlock()
		redistest.Check(t, rests && !called && ctx.Err() != nil, "the lease rests: %v; the recall called the ctx: %v; the Context ended with %v", rests, called, ctx.Err())
	})
}

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
		ln.heard = time.Now()
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

// deaf never hears that a lease has ended, as if the goroutine that is to tell the line did not run yet.
type deaf struct{}

func (deaf) LeaseEnded() {}

// endings notes the outcomes of turns, and how many grants came from memory.
type endings struct {
	mu       sync.Mutex
	outcomes []string
	kept     int
}

func (o *endings) Observe(e leasehold.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Kind == leasehold.EventHoldEnded {
		o.outcomes = append(o.outcomes, e.Outcome)
	}
	if e.Kept {
		o.kept++
	}
}

// A turn is over in the step in which its lease ends: a caller that an Extend or the time has
// told of the end finds no trace of the turn, even if the line has not been told yet.
func TestTurnEndsInTheStepOfItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := redistest.Bubble(t)
		var told endings
		m := newManager(t, client(), keys.Mutex, lease.Config{TTL: time.Second, Observer: &told})
		for name, end := range map[string]func(t *testing.T, turn *Turn){
			"Extend": func(t *testing.T, turn *Turn) {
				server.FlushAll()
				redistest.WantErr(t, turn.Extend(t.Context(), time.Second), leasehold.ErrLost)
			},
			"the deadline": func(t *testing.T, turn *Turn) {
				server.SetError("LOADING it restarts")
				time.Sleep(time.Until(turn.Deadline()) + time.Microsecond)
				synctest.Wait()
				server.SetError("")
			},
		} {
			ln := &line{desk: &desk{h: &Handle{m: m, cfg: Config{LocalFor: time.Second / 2}}, key: name}, name: lineName{permits: 1, limit: 1}, most: 1}
			v := &visit{line: ln, lease: new(lease.Lease)}
			a := lease.Attempt{Op: "lock", Key: name, Permits: 1, Limit: 1, Parent: context.Background(), Turns: deaf{}}
			redistest.WantErr(t, redistest.ErrorOf(m.Acquire(t.Context(), a, v.lease)))
			ln.admit(v, true)
			asked := &Turn{line: ln, parent: nested.Hold{Calm: nested.Calm{Context: t.Context()}}, handed: true}
			asked.begin(v, time.Now())
			ctx := asked.Context()
			end(t, asked)
			redistest.WantErr(t, context.Cause(ctx), leasehold.ErrLost)
			told.outcomes = nil
			redistest.WantErr(t, asked.Release("unlock"), leasehold.ErrLost)
			redistest.Check(t, slices.Equal(told.outcomes, []string{leasehold.OutcomeLost}), "%s: the Observer was told %v", name, told.outcomes)
			// A Context that is asked for after the end has ended.
			unasked := &Turn{line: ln, parent: nested.Hold{Calm: nested.Calm{Context: t.Context()}}}
			v.over = false
			unasked.begin(v, time.Now())
			redistest.Check(t, unasked.Context().Err() != nil, "%s: a Context that was made after the end of the lease has not ended", name)
		}
	})
}
