package multi

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/nested"
)

// Acquire waits until it has all items. ctx bounds the wait, and is the parent of the Lease's
// Context. The MaxWait of an item's handle bounds the wait for that item. The caller must
// Release the Lease, even after it was lost.
//
// Its errors name the item that ended the call, and mean what they mean for this item alone:
// ctx's own, leasehold.ErrBusy when a MaxWait is over, leasehold.ErrQueueFull,
// leasehold.ErrClosed, leasehold.ErrUnavailable, and leasehold.ErrLost or
// leasehold.ErrRevoked if an item was lost while the call waited for another. After
// any error the caller holds nothing.
//
// leasehold.ErrInvalid is for no items, an item without a handle or of mutex.NewQuorum, a bad key
// or number, the same name twice (also of two handles or two servers), two keys of one family with
// a Total, and a ctx from leases beside which an item can never be had.
//
// Acquire costs one round trip if all is free, and at most two for each item that it waits for.
func Acquire(ctx context.Context, items ...Item) (*Lease, error) {
	call.NeedCtx(ctx)
	return take(ctx, "acquire", items, func(t *taking) (err error) {
		for alone := false; len(t.left) > 0 && err == nil; {
			alone, err = t.wait(alone)
		}
		return err
	})
}

// TryAcquire takes all items if all are free now. Otherwise it takes nothing, and returns
// leasehold.ErrBusy with the state of the first item in Redis's order that is not free. It does
// not ask for an item that another caller of this process waits for. Its other errors are those
// of [Acquire]. It costs one round trip.
func TryAcquire(ctx context.Context, items ...Item) (*Lease, error) {
	call.NeedCtx(ctx)
	return take(ctx, "try acquire", items, func(t *taking) error {
		for _, one := range t.left {
			m, key := one.part.Manager, one.part.Attempt.Key
			if busy := m.Waits(key); busy != nil {
				return one.fails(ctx, m.Reject(t.op, key, busy))
			}
		}
		_, err := t.keep(t.tryAll(t.left, call.NewBatch(len(t.left)))())
		return err
	})
}

// Do takes all items, as [Acquire] does, runs fn with the Context of the Lease, and releases it
// when fn returns, panics or calls [runtime.Goexit]. It returns fn's error, joined with
// leasehold.ErrLost if an item was lost meanwhile. If it did not get all items, it returns
// Acquire's error and does not run fn.
func Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error, items ...Item) (err error) {
	l, err := Acquire(ctx, items...)
	if err != nil {
		return err
	}
	defer func() { err = lease.JoinLoss(err, l.Release()) }()
	return fn(l.Context(), l)
}

// take makes a call, for which get gets the items. Nothing stays held if a method of ctx panics or
// ends the goroutine.
func take(ctx context.Context, op string, items []Item, get func(t *taking) error) (l *Lease, err error) {
	all, err := inOrder(op, items)
	if err != nil {
		return nil, err
	}
	t := &taking{op: op, parent: ctx, left: all}
	t.ctx, t.cancel = context.WithCancelCause(nested.Calm{Context: ctx})
	returned := false
	defer func() {
		if !returned {
			t.giveUp(leasehold.ErrReleased)
		}
	}()
	t.giveBackKept()
	if err = get(t); err == nil {
		l, err = t.done()
	}
	if err != nil {
		err = t.fail(err)
	}
	returned = true
	return l, err
}

// giveBackKept gives back what the handles keep of the items and nobody uses (Config.KeepFor), at
// the same time: it would stand in the way of the call.
func (t *taking) giveBackKept() {
	var done sync.WaitGroup
	for _, one := range t.left {
		if k := one.part.Keeper; k != nil {
			done.Go(func() {
				ctx, a, began := t.ctx, &one.part.Attempt, time.Now()
				if most := one.part.Manager.MaxWait(); most > 0 && t.waits() {
					bounded, cancel := context.WithTimeout(ctx, most)
					defer cancel()
					ctx = bounded
				}
				k.GiveBack(ctx, t.op, a.Key)
				a.Waited = time.Since(began)
			})
		}
	}
	done.Wait()
}

// taking is a call under way. It holds items in their order, and never one behind an item that
// it does not hold, except for the moment of a round trip.
type taking struct {
	op     string
	parent context.Context // the caller's
	ctx    context.Context // of all items; it ends with the first that is lost
	cancel context.CancelCauseFunc
	held   []*taken
	left   []*taken
	broken atomic.Bool // a method of ctx ended the goroutine of an attempt
}

// waits says that the call is an Acquire. A try of it that has no answer ends as a wait would.
func (t *taking) waits() bool { return t.op == "acquire" }

var errBroken = errors.New("a method of ctx ended its goroutine")

// attempt takes an item for the call, or waits for it, on a goroutine of its own. If a method of
// the caller's ctx ends that, all attempts end, and so does the caller's goroutine (keep).
func (t *taking) attempt(got *answer, one *taken, wait bool, seat *call.Seat, onWait func()) {
	*got = answer{one, errBroken}
	defer func() {
		if got.err == errBroken {
			t.broken.Store(true)
			lease.EndContext(t.ctx, t.cancel, errBroken)
		}
	}()
	a := one.part.Attempt
	a.Op, a.Wait, a.Seat, a.Quiet = t.op, wait, seat, true
	a.Bounded = t.waits()
	a.OnWait = func() { one.wait = true; onWait() }
	one.lease, one.began = new(lease.Lease), time.Now()
	_, got.err = one.part.Manager.Acquire(t.ctx, a, one.lease)
}

// wait waits for the next item. In the same round trip it tries the items behind that, unless it
// is to wait alone, or the item's server is known to be away: what the tries got would be held
// until the enter is given up. It says whether the next wait is to be alone, because the item was refused.
//
// While the next item is queued for, nothing behind it may be held: another caller may wait for
// that while it holds the next one. So what the tries got goes back. That also breaks no order
// if the enter was not answered, and was granted all the same.
func (t *taking) wait(alone bool) (refused bool, err error) {
	next := t.left[0]
	behind := t.left[1:]
	m := next.part.Manager
	if alone || m.Waits(next.part.Attempt.Key) != nil || m.Client().Away(next.name) {
		behind = nil
	}
	seats := []*call.Seat{nil}
	if len(behind) > 0 {
		seats = call.NewBatch(1 + len(behind))
	}
	queued, came := make(chan struct{}), make(chan struct{})
	all := make([]answer, 1)
	var once sync.Once
	go func() {
		defer close(came)
		t.attempt(&all[0], next, true, seats[0], func() { once.Do(func() { close(queued) }) })
	}()
	answers := t.tryAll(behind, seats[1:])
	select {
	case <-came:
	case <-queued:
		giveBack(answers())
		answers = func() []answer { return nil }
		<-came
	}
	return t.keep(append(all, answers()...))
}

// answer is the outcome of one attempt.
type answer struct {
	of  *taken
	err error
}

// tryAll tries items, each on a goroutine of its own. The function that it returns waits for
// the outcomes.
func (t *taking) tryAll(all []*taken, seats []*call.Seat) func() []answer {
	outcomes := make([]answer, len(all))
	var tries sync.WaitGroup
	for i, one := range all {
		tries.Go(func() { t.attempt(&outcomes[i], one, false, seats[i], func() {}) })
	}
	return func() []answer { tries.Wait(); return outcomes }
}

// keep holds what was granted, up to the first item that was not, and gives back what was granted
// behind that.
func (t *taking) keep(all []answer) (refused bool, err error) {
	if t.broken.Load() {
		giveBack(all)
		runtime.Goexit()
	}
	errs := make([]error, len(all))
	for i, a := range all {
		errs[i] = a.err
	}
	held, ends := judge(t.waits(), errs)
	for _, a := range all[:held] {
		t.held, t.left = append(t.held, a.of), t.left[1:]
		a.of.lease.CancelAtEnd(t.ctx, t.cancel)
		_ = a.of.lease.Ended()
	}
	giveBack(all[held:])
	if ends >= 0 {
		err = all[ends].of.fails(t.parent, all[ends].err)
	}
	return held < len(all), err
}

// judge says what becomes of the outcomes of items in their order: how many of the first ones are
// held, and which outcome ends the call; -1: none. An error other than "busy" ends it, wherever its
// item stands. "Busy" ends it if the item was waited for, which is the first one, or if nothing is
// waited for. So does an answer that passes by itself, such as that a slot is moving: a try is given up
// within milliseconds, and a wait is not.
func judge(waits bool, errs []error) (held, ends int) {
	held, ends = len(errs), -1
	for i, err := range errs {
		if err == nil {
			continue
		}
		held = min(held, i)
		busy := errors.Is(err, leasehold.ErrBusy) || call.HasAnswer(err) && call.Classify(err) == call.NotNow
		if ends < 0 && (i == 0 || !waits || !busy) || ends >= 0 && !busy && errors.Is(errs[ends], leasehold.ErrBusy) {
			ends = i
		}
	}
	return held, ends
}

// giveBack gives back what was granted.
func giveBack(all []answer) {
	for _, a := range all {
		if a.err == nil {
			a.of.lease.GiveBack()
		}
	}
}

// fails reports err as the outcome of the attempt, and returns it.
func (one *taken) fails(ctx context.Context, err error) error {
	m := one.part.Manager
	_ = m.Report(ctx, one.part.Attempt, nil, one.began, one.wait, err)
	m.Events().Observed()
	return err
}

// fail ends the call without a lease. If an item was lost meanwhile, that is why.
func (t *taking) fail(err error) error {
	if t.ctx.Err() == context.Canceled && t.parent.Err() != context.Canceled { // the end of parent may have followed
		err = context.Cause(t.ctx)
	}
	t.giveUp(err)
	return err
}

// giveUp gives back what is held, and ends the contexts because of why.
func (t *taking) giveUp(why error) {
	for _, one := range t.held {
		one.lease.GiveBack()
	}
	t.cancel(why)
}

// done ends a call that holds all items.
func (t *taking) done() (*Lease, error) {
	for i, one := range t.held {
		m := one.part.Manager
		if err := m.Report(t.parent, one.part.Attempt, one.lease, one.began, one.wait, nil); err != nil {
			// It was lost in this moment. Those before it count as held, and given back.
			t.held = append(t.held[:i:i], t.held[i+1:]...)
			one.lease.GiveBack()
			return nil, err
		}
	}
	l := &Lease{items: t.held, ctx: t.ctx}
	for _, one := range t.held {
		one.part.Manager.Events().Observed()
		l.ctx = &nested.Hold{Calm: nested.Calm{Context: l.ctx}, By: one.lease}
	}
	return l, nil
}
