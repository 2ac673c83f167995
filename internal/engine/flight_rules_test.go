package engine_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func newFlightWorld(t *testing.T, rdb redis.UniversalClient) *world {
	t.Helper()
	w := newWorld(t, rdb, true)
	res, err := keys.Family{Kind: keys.Flight, Name: redistest.Name(t)}.Resource("k")
	if err != nil {
		t.Fatal(err)
	}
	w.res = engine.NewFlight(res)
	return w
}

func eachFlight(t *testing.T, fn func(w *world)) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		fn(newFlightWorld(t, target.Client(t)))
	})
}

// P1, of cached values: an enter that arrives after its void time does nothing,
// nor does one that runs after its own leave.
func TestP01_FlightEnterIsVoid(t *testing.T) {
	eachFlight(t, func(w *world) {
		now := w.now()
		reply, err := w.tryEnter(w.lock(hereHandle), engine.EnterOptions{Wait: true, Void: now - 1})
		if err != nil || reply.Code != engine.Void || reply.Now < now {
			w.Errorf("enter answered %+v, %v; want void, with the server's time", reply, err)
		}
		left := w.lock(hereHandle)
		w.leave(left, now+time.Minute.Microseconds())
		reply, err = w.tryEnter(left, engine.EnterOptions{Wait: true, Void: now + time.Minute.Microseconds()})
		if err != nil || reply.Code != engine.GivenUp {
			w.Errorf("enter after its leave answered %+v, %v; want given up", reply, err)
		}
		if n := len(w.holders()); n != 0 {
			w.Errorf("%d leases are held by requests that were void", n)
		}
	})
}

// P11, of cached values: an enter that is sent again finds the lease that it was
// granted, also where the load has been invalidated since, or the waiters of
// that load are all that is left of it; it takes no second one.
func TestP11_RetriedFlightEnter(t *testing.T) {
	eachFlight(t, func(w *world) {
		r := w.lock(hereHandle)
		first := w.enter(r, engine.Granted)
		if again := w.enter(r, engine.Granted); again.Token != first.Token || again.Remaining > first.Remaining {
			w.Errorf("an enter sent again was granted %+v; want the same as %+v", again, first)
		}
		w.invalidate()
		if again := w.enter(r, engine.Granted); again.Token != first.Token {
			w.Errorf("after an invalidation an enter sent again was granted token %d; want %d", again.Token, first.Token)
		}
		next := w.lock(thereHandle)
		if other := w.enter(next, engine.Granted); other.Token <= first.Token {
			w.Errorf("token %d after %d", other.Token, first.Token)
		}
		if again := w.enter(r, engine.Granted); again.Token != first.Token {
			w.Errorf("beside a newer load an enter sent again was granted token %d; want %d", again.Token, first.Token)
		}
		queued := w.lock(hereHandle)
		w.enter(queued, engine.Queued)
		w.enter(queued, engine.Queued)
		if n := w.rdb.ZCard(w.Context(), w.res.Part("queue")).Val(); n != 1 {
			w.Errorf("an enter sent again queued %d times", n)
		}
	})
}

func (w *world) invalidate() {
	w.Helper()
	if _, err := w.eng.Do(w.Context(), w.res.Invalidate("")); err != nil {
		w.Fatal(err)
	}
}
