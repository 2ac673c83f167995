package localturns

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/nested"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// deaf never hears that a lease has ended, as if the goroutine that is to tell the line did not run yet.
type deaf struct{}

func (deaf) LeaseEnded() {}

// endings notes the outcomes of turns.
type endings struct {
	mu       sync.Mutex
	outcomes []string
}

func (o *endings) Observe(e leasehold.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Kind == leasehold.EventHoldEnded {
		o.outcomes = append(o.outcomes, e.Outcome)
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

// The Context of a turn says why the turn ended, although its lease ends in another way before the Context does.
func TestContextSaysWhyItsTurnEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := redistest.Bubble(t)
		m := newManager(t, client(), keys.Mutex, lease.Config{TTL: time.Minute})
		h := New(m, Config{LocalFor: time.Second, MaxHold: time.Second})
		a := lease.Attempt{Op: "lock", Key: "k", Permits: 1, Limit: 1, Wait: true}
		turn := redistest.Must(h.Acquire(t.Context(), a, new(lease.Lease)))(t)
		// before has f run before what the next Unlock is to do.
		before := func(f func()) {
			turn.line.mu.Lock()
			turn.line.mu.later = []func(){f}
			turn.line.mu.Mutex.Unlock()
		}
		ctx := turn.Context()
		before(synctest.Wait) // it is given back
		<-ctx.Done()
		redistest.WantErr(t, context.Cause(ctx), leasehold.ErrMaxHold, redistest.Not(leasehold.ErrReleased))

		turn = redistest.Must(h.Acquire(t.Context(), a, new(lease.Lease)))(t)
		ctx = turn.Context()
		over := make(chan struct{})
		go func() {
			next := redistest.Must(h.Acquire(t.Context(), a, new(lease.Lease)))(t)
			<-over
			_ = next.Release("unlock") // of the lease that was lost, or of another one
		}()
		time.Sleep(time.Millisecond) // a token is not ahead of the clock
		before(func() {              // it is lost in the next turn
			server.FlushAll()
			_ = redistest.ErrorOf(turn.visit.lease.RenewAndCount(false))
		})
		released := turn.Release("unlock")
		close(over)
		redistest.WantErr(t, released)
		redistest.WantErr(t, context.Cause(ctx), leasehold.ErrReleased, redistest.Not(leasehold.ErrLost))
		synctest.Wait()
	})
}
