package localturns

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/nested"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// deaf never hears that a lease has ended, as if the goroutine that is to tell the line did not
// run yet.
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
		family := keys.Family{Kind: keys.Mutex, Name: "locks"}
		var told endings
		m, err := lease.New(client(), lease.Config{
			Package: "mutex", Family: family, Protocol: permits.Family{Family: family, Fenced: true}, TTL: time.Second, Observer: &told,
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, end := range map[string]func(t *testing.T, turn *Turn){
			"Extend": func(t *testing.T, turn *Turn) {
				server.FlushAll()
				if err := turn.Extend(t.Context(), time.Second); !errors.Is(err, leasehold.ErrLost) {
					t.Errorf("Extend: %v; want ErrLost", err)
				}
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
			if _, err := m.Acquire(t.Context(), a, v.lease); err != nil {
				t.Fatal(err)
			}
			ln.admit(v, true)
			asked := &Turn{line: ln, parent: nested.Hold{Context: t.Context()}, handed: true}
			asked.begin(v, time.Now())
			ctx := asked.Context()
			end(t, asked)
			if !errors.Is(context.Cause(ctx), leasehold.ErrLost) {
				t.Errorf("%s: the turn's Context ended by %v; want ErrLost", name, context.Cause(ctx))
			}
			told.outcomes = nil
			if err := asked.Release("unlock"); !errors.Is(err, leasehold.ErrLost) {
				t.Errorf("%s: Release says %v; want ErrLost", name, err)
			}
			if len(told.outcomes) > 1 || told.outcomes[0] != leasehold.OutcomeLost {
				t.Errorf("%s: the Observer was told %v; want that the turn was lost", name, told.outcomes)
			}
			// A Context that is asked for after the end has ended.
			unasked := &Turn{line: ln, parent: nested.Hold{Context: t.Context()}}
			v.over = false
			unasked.begin(v, time.Now())
			if unasked.Context().Err() == nil {
				t.Errorf("%s: a Context that was made after the end of the lease has not ended", name)
			}
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
