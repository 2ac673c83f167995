package localturns

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/nested"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// bench has a handle in a bubble.
type bench struct {
	*testing.T
	server *miniredis.Miniredis
	client func(mod ...func(*redis.Options)) *redis.Client
	m      *lease.Manager
	h      *Handle
}

// inBubble runs fn with a handle of locks, if of names no other kind.
func inBubble(t *testing.T, of lease.Config, cfg Config, fn func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t}
		b.server, b.client = redistest.Bubble(t)
		of.Keeps = cfg.KeepFor > 0
		b.m = b.manager(of)
		b.h = New(b.m, cfg)
		defer b.h.StopKeeping()
		fn(b)
	})
}

// manager makes one that is closed when the test ends.
func (b *bench) manager(cfg lease.Config) *lease.Manager {
	cfg.Package, cfg.Family.Name, cfg.Family.Kind = "mutex", "n", cmp.Or(cfg.Family.Kind, keys.Mutex)
	cfg.Protocol = permits.Family{Family: cfg.Family, Fenced: cfg.Family.Kind == keys.Mutex, Keeps: cfg.Keeps}
	m := redistest.Must(lease.New(b.client(), cfg))(b)
	b.Cleanup(func() { redistest.NoError(b, m.Close(context.Background())) })
	return m
}

var attempt = lease.Attempt{Op: "lock", Key: "k", Permits: 1, Limit: 1, Wait: true}

// take waits for the lock of the key "k", with ctx as the parent of its Context.
func (b *bench) take(ctx context.Context) *Turn {
	b.Helper()
	t := redistest.Must(b.h.Acquire(ctx, attempt, new(lease.Lease)))(b)
	time.Sleep(time.Microsecond) // a token is not ahead of the clock
	return t
}

// line is one of a key, as if a process used the handle for nothing else.
func (b *bench) line(key string, cfg Config, places ...*place) *line {
	d := &desk{h: &Handle{m: b.m, cfg: cfg}, key: key}
	return &line{desk: d, name: lineName{permits: 1, limit: 1}, most: 1, places: places}
}

// The clock of the moment decides whether a turn begins on a lease that rests, whatever the timer does.
func TestNoTurnBeginsAfterKeepFor(t *testing.T) {
	for rested, begins := range map[time.Duration]bool{time.Second - 1: true, time.Second: false} {
		inBubble(t, lease.Config{TTL: 5 * time.Second}, Config{KeepFor: time.Second}, func(b *bench) {
			redistest.WantErr(b, b.take(b.Context()).Release("unlock"))
			synctest.Wait()
			d := b.h.known("k")
			d.mu.Lock()
			d.kept.timer.Stop()
			d.mu.Unlock()
			time.Sleep(rested)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.kept.heard = time.Now()
			got := d.lines[0].resume(b.Context(), "lock")
			redistest.Expect(b, got != nil, begins, "after %v a turn begins: %v", rested)
			if got != nil {
				got.end(released, leasehold.ErrReleased)
			}
		})
	}
}

// Redis has forgotten two leases that rest. A request that finds one of them ended, before the
// desk was told so, begins its turn on the other: that one goes back after the turn all the same.
func TestLeaseThatWasFoundEndedEndsTheRestOfOthers(t *testing.T) {
	of := lease.Config{TTL: 5 * time.Second, Family: keys.Family{Kind: keys.Semaphore}}
	inBubble(t, of, Config{KeepFor: time.Second}, func(b *bench) {
		a := attempt
		a.Limit = 2
		first := redistest.Must(b.h.Acquire(b.Context(), a, new(lease.Lease)))(b)
		last := redistest.Must(b.h.Acquire(b.Context(), a, new(lease.Lease)))(b)
		redistest.WantErr(b, first.Release("release"))
		redistest.WantErr(b, last.Release("release"))
		synctest.Wait()
		b.server.FlushAll()
		d := b.h.known("k")
		d.mu.Lock() // LeaseEnded waits for it
		_ = redistest.ErrorOf(last.visit.lease.RenewAndCount(true))
		next := d.lines[0].resume(b.Context(), "acquire")
		d.mu.Unlock()
		redistest.CheckNow(b, next != nil && next.visit == first.visit, "no turn began on the lease that nobody knows to have ended")
		synctest.Wait()
		redistest.WantErr(b, next.Release("release"), leasehold.ErrLost)
	})
}

// Close may begin in the moment of an acquisition from memory.
func TestAcquisitionFromMemoryLooksForClose(t *testing.T) {
	inBubble(t, lease.Config{TTL: 5 * time.Second}, Config{KeepFor: time.Second}, func(b *bench) {
		redistest.WantErr(b, b.take(b.Context()).Release("unlock"))
		synctest.Wait()
		b.m.Refuse() // what Close begins with; the lease still rests
		redistest.WantErr(b, redistest.ErrorOf(b.h.Acquire(b.Context(), attempt, new(lease.Lease))), leasehold.ErrClosed)
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
	var told harness.Told
	inBubble(t, lease.Config{TTL: 5 * time.Second, Observer: &told}, Config{LocalFor: time.Second, KeepFor: time.Second}, func(b *bench) {
		first := b.take(b.Context())
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		release := sync.OnceFunc(func() { redistest.NoError(b, first.Release("unlock")) })
		second := b.take(harness.BrokenCtx{Context: ctx, Before: func(method string) {
			if method == "Value" {
				release()
			}
		}})
		redistest.WantErr(b, second.Release("unlock"))
		begun, ended := told.Events(leasehold.EventAcquired), told.Events(leasehold.EventHoldEnded)
		redistest.Check(b, len(begun) == 2 && !begun[0].Kept && begun[1].Kept && len(ended) == 2, "told %+v and %+v", begun, ended)
	})
}

// A recall that comes between the end of a turn and that of its Context does not end the Context:
// that calls the code of the caller's ctx, and the desk is locked.
func TestRecallEndsNoContext(t *testing.T) {
	inBubble(t, lease.Config{TTL: 5 * time.Second}, Config{KeepFor: time.Second}, func(b *bench) {
		parent, cancel := context.WithCancel(b.Context())
		defer cancel()
		var calls atomic.Int32
		taken := b.take(harness.BrokenCtx{Context: parent, Before: func(string) { calls.Add(1) }})
		ctx := taken.Context()
		d := b.h.known("k")
		d.mu.Lock()
		taken.end(released, leasehold.ErrReleased)
		rests, before := taken.line.rest(taken.visit), calls.Load()
		d.recall()
		called := calls.Load() > before
		d.mu.Unlock()
		redistest.Check(b, rests && !called && ctx.Err() != nil, "the lease rests: %v; the recall called the ctx: %v; the Context ended with %v", rests, called, ctx.Err())
	})
}

// A process that was held up between the grant and the first turn gives the lease back: that
// turn, too, would begin later than LocalFor after the grant.
func TestFirstTurnDoesNotBeginAfterLocalFor(t *testing.T) {
	inBubble(t, lease.Config{}, Config{}, func(b *bench) {
		for heldUp, begins := range map[time.Duration]bool{time.Second: true, time.Second + 1: false} {
			ln := b.line(heldUp.String(), Config{LocalFor: time.Second})
			v := &visit{line: ln, lease: new(lease.Lease)}
			redistest.WantErr(b, redistest.ErrorOf(b.m.Acquire(b.Context(), ln.attempt("lock", v), v.lease)))
			redistest.CheckNow(b, ln.admit(v, false), "the lease has ended")
			ln.push(&Turn{line: ln})
			time.Sleep(heldUp)
			redistest.Expect(b, ln.pass(v), begins, "after %v the turn begins: %v", heldUp)
		}
	})
}

// Once a place is granted, it has no state of the queue any more, and the line may not know of the grant yet. A caller that
// gives up at that moment is told the last state.
func TestBusyAfterThePlaceWasGranted(t *testing.T) {
	inBubble(t, lease.Config{}, Config{}, func(b *bench) {
		var held, next lease.Lease
		redistest.WantErr(b, redistest.ErrorOf(b.m.Acquire(b.Context(), attempt, &held)))
		p := &place{}
		ln := b.line("k", Config{}, p)
		ln.onQueued(p, redistest.Must(b.m.Enter(b.Context(), attempt, nil, &next))(b))
		redistest.WantErr(b, held.Release("unlock"))
		redistest.WantErr(b, p.queued.Await(b.Context(), &next))
		busy := ln.busy()
		redistest.Check(b, busy.Limit == 1 && busy.InUse == 1, "it is told: %v", busy)
		redistest.WantErr(b, next.Release("unlock"))
	})
}

// While a caller stands in the line, a request that does not wait is busy without a call. It is told first that its ctx has
// ended, or that the handle is closed.
func TestRequestThatDoesNotWaitBesideALine(t *testing.T) {
	inBubble(t, lease.Config{}, Config{LocalFor: time.Second}, func(b *bench) {
		b.server.SetError("LOADING it is not to be asked")
		ln := redistest.Must(b.h.lock("k", 1, 1))(b)
		ln.push(&Turn{line: ln})
		ln.heard = time.Now()
		ln.mu.Unlock()
		try := func(ctx context.Context) error {
			return redistest.ErrorOf(b.h.Acquire(ctx, lease.Attempt{Op: "try lock", Key: "k", Permits: 1, Limit: 1}, new(lease.Lease)))
		}
		redistest.WantErr(b, try(b.Context()), leasehold.ErrBusy, redistest.Not(leasehold.ErrUnavailable))
		redistest.WantErr(b, try(harness.Ended(b.Context())), context.Canceled, redistest.Not(leasehold.ErrBusy))
		b.m.Refuse()
		redistest.WantErr(b, try(b.Context()), leasehold.ErrClosed, redistest.Not(leasehold.ErrBusy))
	})
}

// A caller whose place is refused in the moment in which its ctx ends is told of the refusal: Redis did not say that
// the lock is busy.
func TestRefusalInTheMomentInWhichCtxEnds(t *testing.T) {
	inBubble(t, lease.Config{}, Config{}, func(b *bench) {
		refused := errors.New("refused")
		for range 50 { // a select takes any of its cases
			p := &place{}
			ln := b.line("k", Config{}, p)
			waits := &Turn{line: ln, op: "lock"}
			ln.push(waits)
			ln.heard = time.Now()
			ctx, cancel := context.WithCancel(b.Context())
			ended := harness.Begin(b, func() error {
				ln.mu.Lock()
				defer ln.mu.Unlock()
				return waits.await(ctx, nil)
			})
			synctest.Wait()
			ln.mu.Lock()
			cancel()
			ln.onPlaceDone(p, nil, refused, true)
			ln.mu.Unlock()
			redistest.Require(b, ended.Failed(), refused, "it is told: %v")
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
		ln, live := &line{desk: &desk{}, length: c.turns}, 0
		for _, cancelled := range c.cancelled {
			ln.places = append(ln.places, &place{cancel: func() {}, cancelled: cancelled})
		}
		ln.cancelExcess()
		for _, p := range ln.places {
			if !p.cancelled {
				live++
			}
		}
		redistest.Expect(t, live, c.want, "%s: %d live places are left", name)
	}
}

// deaf never hears that a lease has ended, as if the goroutine that is to tell the line did not run yet.
type deaf struct{}

func (deaf) LeaseEnded() {}

// A turn is over in the step in which its lease ends: a caller that an Extend or the time has
// told of the end finds no trace of the turn, even if the line has not been told yet.
func TestTurnEndsInTheStepOfItsLease(t *testing.T) {
	var told harness.Told
	inBubble(t, lease.Config{TTL: time.Second, Observer: &told}, Config{}, func(b *bench) {
		for name, end := range map[string]func(turn *Turn){
			"Extend": func(turn *Turn) {
				b.server.FlushAll()
				redistest.WantErr(b, turn.Extend(b.Context(), time.Second), leasehold.ErrLost)
			},
			"the deadline": func(turn *Turn) {
				b.server.SetError("LOADING it restarts")
				time.Sleep(time.Until(turn.Deadline()) + time.Microsecond)
				synctest.Wait()
				b.server.SetError("")
			},
		} {
			ln := b.line(name, Config{LocalFor: time.Second / 2})
			v := &visit{line: ln, lease: new(lease.Lease)}
			a := ln.attempt("lock", v)
			a.Turns = deaf{}
			redistest.WantErr(b, redistest.ErrorOf(b.m.Acquire(b.Context(), a, v.lease)))
			ln.admit(v, true)
			asked := &Turn{line: ln, parent: nested.Hold{Calm: nested.Calm{Context: b.Context()}}, handed: true}
			asked.begin(v, time.Now())
			ctx := asked.Context()
			end(asked)
			redistest.WantErr(b, context.Cause(ctx), leasehold.ErrLost)
			before := len(told.Events(leasehold.EventHoldEnded))
			redistest.WantErr(b, asked.Release("unlock"), leasehold.ErrLost)
			ends := told.Events(leasehold.EventHoldEnded)[before:]
			redistest.Check(b, len(ends) == 1 && ends[0].Outcome == leasehold.OutcomeLost, "%s: the Observer was told %+v", name, ends)
			// A Context that is asked for after the end has ended.
			unasked := &Turn{line: ln, parent: nested.Hold{Calm: nested.Calm{Context: b.Context()}}}
			v.over = false
			unasked.begin(v, time.Now())
			redistest.Check(b, unasked.Context().Err() != nil, "%s: a Context that was made after the end of the lease has not ended", name)
		}
	})
}
