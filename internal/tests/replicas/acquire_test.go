package replicas

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// tries is how often each way to a grant is tried with the replicas cut off.
const tries = 200

// attempt runs n attempts at the same time and returns their errors.
func attempt(n int, one func(i int) (lease, error)) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { _, errs[i] = one(i) })
	}
	all.Wait()
	return errs
}

// wantUnconfirmed fails the test unless each attempt failed since no replica confirmed.
func wantUnconfirmed(t *testing.T, errs []error) {
	t.Helper()
	granted := 0
	for _, err := range errs {
		if err == nil {
			granted++
			continue
		}
		redistest.WantErr(t, err, leasehold.ErrUnavailable)
		redistest.WantText(t, err, "0 of 2 replicas confirmed it within 50ms")
		redistest.WantNot(t, err, leasehold.ErrBusy, leasehold.ErrLost, context.DeadlineExceeded)
	}
	redistest.Check(t, granted == 0, "%d of %d grants were handed out", granted, len(errs))
}

// With both replicas cut off no acquisition is granted, each says how many confirmed, and all that Redis had granted is
// given back. The Observer is told of acquisitions that failed. They are no late grants, and Redis is not out of reach.
func TestNothingIsGrantedWithoutReplicas(t *testing.T) {
	eachVersion(t, func(t *testing.T, x *redistest.Replicated) {
		for kind, newHandle := range kinds {
			t.Run(kind, func(t *testing.T) {
				defer x.Heal()
				var told harness.Told
				rdb := x.Primary.Client()
				h := newHandle(t, rdb, mutex.Config{Name: redistest.Name(t), Replicas: 2, ReplicaWait: 50 * time.Millisecond, Observer: &told})
				held := granted(t, h, "before")
				x.Cut()
				wantUnconfirmed(t, attempt(tries, func(i int) (lease, error) { return h.acquire(t.Context(), fmt.Sprint("k", i)) }))
				wantUnconfirmed(t, attempt(tries, func(i int) (lease, error) { return h.tryAcquire(t.Context(), fmt.Sprint("try", i)) }))
				redistest.Expect(t, held.giveBack(), nil, "give back: %v")
				redistest.Eventually(t, "all that was granted to be given back", func() bool {
					return len(rdb.Keys(t.Context(), "*holders").Val()) == 0
				})
				redistest.AtLeast(t, told.Count(leasehold.EventAcquired, leasehold.OutcomeUnavailable), 2*tries, "%d acquisitions failed")
				redistest.Expect(t, len(told.Events(leasehold.EventLateGrant, leasehold.EventUnavailable)), 0, "%d late grants and outages")
				x.Heal()
				redistest.NoError(t, granted(t, h, "k1").giveBack())
			})
		}
	})
}

// A grant that comes by a message, or in the reply to a call of the same handle, is not
// handed out either: the new owner has it confirmed before its call returns.
func TestNothingIsHandedOverWithoutReplicas(t *testing.T) {
	eachVersion(t, func(t *testing.T, x *redistest.Replicated) {
		for kind, newHandle := range kinds {
			for _, way := range []string{"message", "reply"} {
				if kind == "mutex, local turns" && way == "reply" {
					continue // the holder's process queues nobody
				}
				t.Run(kind+" by "+way, func(t *testing.T) {
					defer x.Heal()
					s := mutex.Config{Name: redistest.Name(t), Replicas: 2, ReplicaWait: 50 * time.Millisecond}
					rdb := x.Primary.Client()
					waiting := newHandle(t, rdb, s)
					holding := waiting
					if way == "message" {
						holding = newHandle(t, x.Primary.Client(), s)
					}
					held := make([]lease, tries)
					for i := range held {
						held[i] = granted(t, holding, fmt.Sprint("k", i))
					}
					outcome := harness.Start(t, func() ([]error, error) {
						return attempt(tries, func(i int) (lease, error) { return waiting.acquire(t.Context(), fmt.Sprint("k", i)) }), nil
					})
					redistest.Eventually(t, "all to wait", func() bool {
						queued := int64(0)
						for _, key := range rdb.Keys(t.Context(), "leasehold:*queue").Val() {
							queued += rdb.ZCard(t.Context(), key).Val()
						}
						return queued == tries
					})
					x.Cut()
					wantGivenBack(t, held)
					wantUnconfirmed(t, outcome.Got())
				})
			}
		}
	})
}

// wantGivenBack gives back all leases at the same time. Nothing that replicas are waited for holds that up.
func wantGivenBack(t *testing.T, held []lease) {
	t.Helper()
	began := time.Now()
	for i, err := range attempt(len(held), func(i int) (lease, error) { return nil, held[i].giveBack() }) {
		redistest.Check(t, err == nil, "give back %d: %v", i, err)
	}
	t.Logf("%d were given back within %v", len(held), time.Since(began))
}

// Where the reply is lost, the enter is sent again and writes nothing, on a connection that
// wrote nothing: WAIT has to wait all the same.
func TestRepeatedEnterIsNotConfirmedByItself(t *testing.T) {
	eachVersion(t, func(t *testing.T, x *redistest.Replicated) {
		p := redistest.NewProxy(t, x.Primary.Addr())
		for kind, newHandle := range kinds {
			t.Run(kind, func(t *testing.T) {
				defer x.Heal()
				h := newHandle(t, p.Client(), mutex.Config{Name: redistest.Name(t), Replicas: 2, ReplicaWait: 50 * time.Millisecond})
				if err := granted(t, h, "before").giveBack(); err != nil { // the scripts are known
					t.Fatal(err)
				}
				x.Cut()
				for i := range 5 {
					enters := func(cmd []string) bool { return strings.HasSuffix(harness.Script(cmd), "enter") }
					lost := p.EatReply(enters, 1) // and not the leave of the round before, which may be under way
					_, err := h.acquire(t.Context(), fmt.Sprint("k", i))
					wantUnconfirmed(t, []error{err})
					lost.Wait()
				}
			})
		}
	})
}

// Whichever reply of the pipeline is lost, the request is sent again, and granted once.
func TestLostReplyOfAConfirmation(t *testing.T) {
	onNewest(t, func(t *testing.T, x *redistest.Replicated, newHandle maker) {
		p := redistest.NewProxy(t, x.Primary.Addr())
		h := newHandle(t, p.Client(), mutex.Config{Name: redistest.Name(t), Replicas: 2, ReplicaWait: 2 * time.Second})
		for _, name := range []string{"EVALSHA", "PEXPIRE", "SET", "WAIT"} {
			l, err := h.acquire(t.Context(), "k")
			redistest.WantErr(t, err)
			redistest.WantErr(t, l.giveBack())
			lost := p.EatReply(redistest.Named(name), 1)
			if l, err = h.acquire(t.Context(), "k"); err != nil {
				t.Fatalf("%s lost: %v", name, err)
			}
			lost.Wait()
			redistest.Expect(t, l.giveBack(), nil, "%s lost: give back: %v", name)
			if l, err = h.tryAcquire(t.Context(), "k"); err != nil {
				t.Fatalf("%s lost: %v; want that it is free", name, err)
			}
			redistest.NoError(t, l.giveBack())
		}
	})
}

// One replica of two is not enough for Replicas 2, and is for Replicas 1.
func TestReplicasAreCounted(t *testing.T) {
	onNewest(t, func(t *testing.T, x *redistest.Replicated, newHandle maker) {
		name := redistest.Name(t)
		const wait = 2 * time.Second // the other replica has to answer in it
		two := newHandle(t, x.Primary.Client(), mutex.Config{Name: name, Replicas: 2, ReplicaWait: wait})
		one := newHandle(t, x.Primary.Client(), mutex.Config{Name: name, Replicas: 1, ReplicaWait: wait})
		none := newHandle(t, x.Primary.Client(), mutex.Config{Name: name})
		x.Links[0].Cut()
		redistest.WantErr(t, redistest.ErrorOf(two.acquire(t.Context(), "k2")), leasehold.ErrUnavailable, redistest.Says("1 of 2 replicas"))
		redistest.Expect(t, redistest.ErrorOf(one.acquire(t.Context(), "k1")), nil, "with one replica: %v")
		x.Links[1].Cut()
		redistest.Expect(t, redistest.ErrorOf(none.acquire(t.Context(), "k0")), nil, "without replicas: %v")
	})
}

// Many callers wait for replicas. Others, of the same handle, give back as if nobody did. A caller that stops waiting
// returns at once, and leaves nothing.
func TestNobodyElseWaitsForReplicas(t *testing.T) {
	onNewest(t, func(t *testing.T, x *redistest.Replicated, newHandle maker) {
		const wait = time.Second
		rdb := x.Primary.Client()
		h := newHandle(t, rdb, mutex.Config{Name: redistest.Name(t), Replicas: 2, ReplicaWait: wait})
		held := redistest.Must(h.acquire(t.Context(), "held"))(t)
		x.Cut()
		done := harness.Start(t, func() ([]error, error) {
			return attempt(100, func(i int) (lease, error) { return h.acquire(t.Context(), fmt.Sprint("k", i)) }), nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		left := harness.Start(t, func() (lease, error) { return h.acquire(ctx, "left") })
		redistest.Eventually(t, "WAIT at the server", func() bool { return blocked(rdb) })
		began := time.Now()
		cancel()
		redistest.WantErr(t, left.Failed(), context.Canceled)
		redistest.Expect(t, held.giveBack(), nil, "give back: %v")
		redistest.AtMost(t, time.Since(began), wait*9/10, "leaving and giving back took %v")
		for _, err := range done.Got() {
			redistest.WantErr(t, err, leasehold.ErrUnavailable, redistest.Says("0 of 2 replicas"))
		}
		redistest.AtMost(t, time.Since(began), 3*wait, "the callers do not share WAITs: they waited for %v")
		redistest.Eventually(t, "all to be given back", func() bool { return len(rdb.Keys(t.Context(), "*holders").Val()) == 0 })
	})
}

// Many callers take and give back while the replicas follow: releases and acquisitions are
// on their way at the same time, and every acquisition is confirmed.
func TestManyCallersAreConfirmed(t *testing.T) {
	onNewest(t, func(t *testing.T, x *redistest.Replicated, newHandle maker) {
		h := newHandle(t, x.Primary.Client(), mutex.Config{Name: redistest.Name(t), Replicas: 2, ReplicaWait: 2 * time.Second})
		for i, err := range attempt(64, func(i int) (lease, error) {
			for range 20 {
				l, err := h.acquire(t.Context(), fmt.Sprint("k", i/2)) // two for each key
				if err == nil {
					err = l.giveBack()
				}
				if err != nil {
					return nil, err
				}
			}
			return nil, nil
		}) {
			redistest.Check(t, err == nil, "caller %d: %v", i, err)
		}
	})
}

// MaxWait may end between a grant and its confirmation: the waiter is not told that the lock was busy.
func TestMaxWaitEndsBeforeReplicasConfirm(t *testing.T) {
	x := redistest.StartReplicated(t, redistest.Newest(t), 2)
	name := redistest.Name(t)
	rdb := x.Primary.Client()
	held := redistest.Must(openMutex(t, x.Primary.Client(), mutex.Config{Name: name}).Lock(t.Context(), "k"))(t)
	waiting := openMutex(t, rdb, mutex.Config{Name: name, Replicas: 2, ReplicaWait: 2 * time.Second, MaxWait: time.Second})
	waiter := harness.Start(t, func() (*mutex.Lock, error) { return waiting.Lock(t.Context(), "k") })
	redistest.Eventually(t, "its place to be confirmed", func() bool {
		return rdb.ZCard(t.Context(), "leasehold:mtx:{"+name+":k}:queue").Val() == 1 && !blocked(rdb)
	})
	x.Cut()
	defer x.Heal()
	redistest.WantErr(t, held.Unlock())
	redistest.WantErr(t, waiter.Failed(), leasehold.ErrUnavailable, redistest.Not(leasehold.ErrBusy))
}

// A server that grants, and then refuses what confirms the grant, leaves nothing taken.
func TestRefusedConfirmationLeavesNothing(t *testing.T) {
	onNewest(t, func(t *testing.T, x *redistest.Replicated, newHandle maker) {
		rdb := x.Primary.Client()
		redistest.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "nowait", "on", "nopass", "~*", "&*", "+@all", "-wait").Err())
		limited := x.Primary.Client(func(o *redis.Options) { o.Username, o.Password = "nowait", "any" })
		h := newHandle(t, limited, mutex.Config{Name: redistest.Name(t), Replicas: 2})
		redistest.WantErr(t, redistest.ErrorOf(h.tryAcquire(t.Context(), "k")), leasehold.ErrUnavailable, redistest.Says("NOPERM"))
		redistest.Eventually(t, "what was granted to be given back", func() bool {
			return len(rdb.Keys(t.Context(), "*holders").Val()) == 0
		})
	})
}
