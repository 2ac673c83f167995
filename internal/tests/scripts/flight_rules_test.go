package scripts_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func newFlightWorld(t *testing.T, rdb redis.UniversalClient) *world {
	t.Helper()
	w := newWorld(t, rdb, true)
	res := redistest.Must(keys.Family{Kind: loads.Kind, Name: redistest.Name(t)}.Resource("k"))(t)
	w.res = newLoadsResource(res)
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
func TestEnterOfALoadIsVoidAfterItsTime(t *testing.T) {
	eachFlight(t, func(w *world) {
		now := w.now()
		reply, err := w.tryEnter(w.lock(hereHandle), protocol.EnterOptions{Wait: true, VoidAfter: new(now - 1)})
		redistest.Check(w, err == nil && reply.Code == life.Void && reply.Now >= now,
			"enter answered %+v, %v; want void, with the server's time", reply, err)
		left := w.lock(hereHandle)
		w.leave(left, now+time.Minute.Microseconds())
		reply, err = w.tryEnter(left, protocol.EnterOptions{Wait: true, VoidAfter: new(now + time.Minute.Microseconds())})
		redistest.Check(w, err == nil && reply.Code == life.GivenUp, "enter after its leave answered %+v, %v; want given up", reply, err)
		redistest.Expect(w, len(w.holders()), 0, "%d leases are held by requests that were void")
	})
}

// P11, of cached values: an enter that is sent again finds the lease that it was
// granted, also where the load has been invalidated since, or the waiters of
// that load are all that is left of it; it takes no second one.
func TestRetriedEnterOfALoadFindsItsOwnLease(t *testing.T) {
	eachFlight(t, func(w *world) {
		r := w.lock(hereHandle)
		first := w.enter(r, life.Granted)
		if again := w.enter(r, life.Granted); again.Token != first.Token || again.Term > first.Term {
			w.Errorf("an enter sent again was granted %+v; want the same as %+v", again, first)
		}
		w.invalidate()
		if again := w.enter(r, life.Granted); again.Token != first.Token {
			w.Errorf("after an invalidation an enter sent again was granted token %d; want %d", again.Token, first.Token)
		}
		next := w.lock(thereHandle)
		if other := w.enter(next, life.Granted); other.Token <= first.Token {
			w.Errorf("token %d after %d", other.Token, first.Token)
		}
		if again := w.enter(r, life.Granted); again.Token != first.Token {
			w.Errorf("beside a newer load an enter sent again was granted token %d; want %d", again.Token, first.Token)
		}
		queued := w.lock(hereHandle)
		w.enter(queued, life.Queued)
		w.enter(queued, life.Queued)
		redistest.Expect(w, w.rdb.ZCard(w.Context(), w.res.Part("queue")).Val(), 1, "an enter sent again queued %d times")
	})
}

func (w *world) invalidate() {
	w.Helper()
	redistest.Must(w.client.Do(w.Context(), w.res.invalidate()))(w)
}

// R1, R2: an invalidation drops all that later comers could be served with: the
// value, the remembered failure, and what was kept for those who waited.
func TestFlightInvalidateDropsAll(t *testing.T) {
	for name, l := range map[string]loads.Result{
		"value":   {Prefix: "p", Suffix: "s", Keep: time.Minute},
		"failure": {Prefix: "p", Suffix: "s", Remember: time.Minute},
		"landed":  {Prefix: "p", Suffix: "s"},
	} {
		t.Run(name, func(t *testing.T) {
			eachFlight(t, func(w *world) {
				leader, waiter := w.lock(hereHandle), w.lock(thereHandle)
				token := w.enter(leader, life.Granted).Token
				w.enter(waiter, life.Queued)
				if reply := w.land(leader, token, l); reply.State != loads.Published {
					w.Fatalf("landing answered %+v", reply)
				}
				if n := w.exists(name); n != 1 {
					w.Fatalf("there is no %s", name)
				}
				w.invalidate()
				redistest.Expect(w, w.exists("value", "failure", "landed"), 0, "%d keys are left after an invalidation")
			})
		})
	}
}

func (w *world) land(r *request, token uint64, l loads.Result) loads.PublishReply {
	w.Helper()
	v := redistest.Must(w.client.Do(w.Context(), r.publish(token, 0, l)))(w)
	return redistest.Must(loads.ReadPublish(v))(w)
}

// exists counts the parts that there are.
func (w *world) exists(parts ...string) (n int64) {
	w.Helper()
	for _, part := range parts {
		there := redistest.Must(w.rdb.Exists(w.Context(), w.res.Part(part)).Result())(w)
		n += there
	}
	return n
}

// A publication that is sent again after a lost reply gets the first one's
// answer, and changes nothing: not what was stored since, nor the process that loads since.
func TestFlightLandAgain(t *testing.T) {
	eachFlight(t, func(w *world) {
		leader := w.lock(hereHandle)
		token := w.enter(leader, life.Granted).Token
		stored := loads.Result{Prefix: "first", Keep: time.Minute}
		first := w.land(leader, token, stored)
		before := w.value()
		if again := w.land(leader, token, stored); again.State != first.State || w.value() != before {
			w.Errorf("sent again it answered %+v after %+v, and the value went from %q to %q", again, first, before, w.value())
		}
		w.invalidate()
		next := w.lock(thereHandle)
		w.enter(next, life.Granted)
		if again := w.land(leader, token, stored); again.State != loads.LeaseOver || w.value() != "" {
			w.Errorf("sent again after an invalidation it answered %+v, and the value is %q", again, w.value())
		}
		if left := w.renew(next, time.Minute); left == 0 {
			w.Error("it ended the lease of the next load")
		}
	})
}

// A waiter is told at once, in one message to its handle, of a load that has
// ended: with its result, or without one, so that it enters again.
func TestFlightEndsTellWhoWaits(t *testing.T) {
	for name, end := range map[string]func(w *world, leader *request, token uint64){
		"S": func(w *world, leader *request, token uint64) {
			w.land(leader, token, loads.Result{Prefix: "p", Keep: time.Minute})
		},
		"H": func(w *world, leader *request, token uint64) {
			w.land(leader, token, loads.Result{Prefix: "p"})
		},
		"F": func(w *world, leader *request, token uint64) { w.leave(leader, 0) },
		"F of an invalidated load": func(w *world, leader *request, token uint64) {
			w.invalidate()
			w.leave(leader, 0)
		},
		"A": func(w *world, leader *request, token uint64) {
			w.invalidate()
			w.land(leader, token, loads.Result{Prefix: "p", Keep: time.Minute})
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachFlight(t, func(w *world) {
				// A handle of its own: over a Cluster's bus a message of another
				// subtest may come late, on the channel of its handle.
				there := fmt.Sprintf("%022x", rand.Uint64())
				inbox := w.rdb.Subscribe(w.Context(), keys.Family{Kind: loads.Kind}.Inbox(there))
				defer inbox.Close()
				redistest.Must(inbox.Receive(w.Context()))(w)
				leader, waiter := w.lock(hereHandle), w.lock(there)
				token := w.enter(leader, life.Granted).Token
				w.enter(waiter, life.Queued)
				end(w, leader, token)
				got := redistest.Must(inbox.ReceiveTimeout(w.Context(), 10*time.Second))(w)
				text := got.(*redis.Message).Payload
				of, record, err := loads.ParseMessage(text)
				redistest.CheckNow(w, err == nil && strings.HasPrefix(text, fmt.Sprint(waiter.Seq, " ")) && of == token,
					"%q: %+v, %v", text, record, err)
				if freed := name[0] == 'F'; record.Freed != freed || record.Stored != (name == "S") || record.Invalidated != (name == "A") {
					w.Errorf("%s: %+v", name, record)
				}
			})
		})
	}
}

func (w *world) value() string {
	w.Helper()
	v, err := w.rdb.Get(w.Context(), w.res.Part("value")).Result()
	if err != nil && err != redis.Nil {
		w.Fatal(err)
	}
	return v
}
