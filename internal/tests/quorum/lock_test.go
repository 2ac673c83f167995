package quorum

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestMain(m *testing.M) { redistest.MainOf(m, 8) }

// The waiters get the lock in the order in which they came. Nothing is asked in between but signs of
// life, so each hand-over takes a message and a round of calls.
func TestWaitersInTheirOrder(t *testing.T) {
	each(t, 5, func(f *fleet) {
		first := f.lock(f.open(), "k")
		order := make(chan int, 6)
		var all sync.WaitGroup
		old := []*mutex.Mutex{f.open(), f.open(), f.open()}
		time.Sleep(100 * time.Millisecond) // their place does not depend on the age of their handle
		for i := range 6 {
			if i == len(old) {
				old = append(old, f.open())
			}
			all.Go(func() { f.tells(old[i], i, order) })
			f.waiting(old[i], "k", i+1)
		}
		began := time.Now()
		f.unlock(first)
		all.Wait()
		took := time.Since(began)
		for i := range 6 {
			redistest.Expect(f, <-order, i, "turn %d is that of waiter %d", i)
		}
		redistest.AtMost(f, took, 1400*time.Millisecond, "six hand-overs took %v: some waiter was only told by its sign of life")
	})
}

// tells takes the lock of k, says so, and gives it back.
func (f *fleet) tells(m *mutex.Mutex, name int, order chan<- int) {
	l, err := m.Lock(context.Background(), "k")
	if err != nil {
		f.Error(err)
		return
	}
	order <- name
	redistest.NoError(f, l.Unlock())
}

// waiting waits until n requests wait for key.
func (f *fleet) waiting(m *mutex.Mutex, key string, n int) {
	f.Helper()
	harness.Until(f, 20*time.Second, func() error {
		state, err := m.Inspect(context.Background(), key)
		if err == nil && state.Waiting != n {
			err = fmt.Errorf("%d wait; want %d", state.Waiting, n)
		}
		return err
	})
}

// Each of three waiters is first at another server. The later ones yield their votes to the
// earliest; else each would wait for the others.
func TestSplitVotesAreYielded(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		const far = 200 * time.Millisecond
		var handles []*mutex.Mutex
		for i := range 3 {
			own := f.own()
			m := own.open()
			f.begin(m)
			for j := range 3 {
				if j != i {
					own.proxies[j].Delay(far, 0)
				}
			}
			handles = append(handles, m)
		}
		var turns []*harness.Call[struct{}]
		for _, m := range handles {
			turns = append(turns, f.turn(m, "k"))
		}
		for _, turn := range turns {
			turn.Got()
		}
	})
}

// A waiter that reaches no majority stands in nobody's way.
func TestNothingIsKeptWithoutAMajority(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		cut := f.own()
		a, b := cut.open(), f.open()
		f.begin(a)
		f.begin(b)
		cut.refuse(1, true)
		cut.refuse(2, true)
		f.refuse(2, true)
		entered := cut.proxies[0].Count("EVALSHA")
		began := time.Now()
		ends := f.turn(a, "k")
		redistest.Eventually(f, "a request at one server", func() bool { return cut.proxies[0].Count("EVALSHA") > entered })
		l := f.lock(b, "k")
		redistest.AtMost(f, time.Since(began), 2*time.Second, "a lock took %v beside a waiter that has one vote of three")
		f.unlock(l)
		<-ends.Done
		redistest.WantErr(f, ends.Err, leasehold.ErrUnavailable)
	})
}

// A waiter that reached no majority comes again with the ticket that it had.
func TestAWaiterKeepsItsTicket(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		cut := f.own()
		first, second := cut.open(), f.open()
		f.begin(first)
		held := f.lock(second, "k")
		cut.refuse(1, true)
		cut.refuse(2, true)
		order := make(chan int, 2)
		var all sync.WaitGroup
		entered := cut.proxies[0].Count("EVALSHA")
		all.Go(func() { f.tells(first, 1, order) })
		redistest.Eventually(f, "a request at one server", func() bool { return cut.proxies[0].Count("EVALSHA") > entered })
		all.Go(func() { f.tells(second, 2, order) })
		f.waiting(second, "k", 1)
		cut.refuse(1, false)
		cut.refuse(2, false)
		f.waiting(second, "k", 2)
		f.unlock(held)
		all.Wait()
		redistest.Expect(f, <-order, 1, "the first turn is that of waiter %d")
	})
}

// A server that could not be told that the lock is free is told later, long before its vote ends.
func TestALeaveIsRepeated(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		m := f.open()
		l := f.lock(m, "k")
		third := f.direct(2)
		vote := func() bool { return third.Exists(context.Background(), f.part("k", "holders")).Val() == 1 }
		redistest.Eventually(f, "the third vote", vote)
		f.refuse(2, true)
		f.unlock(l)
		f.refuse(2, false)
		redistest.Eventually(f, "the vote to be given back", func() bool { return !vote() })
	})
}

var sizes = map[string]int{"three": 3, "five": 5}

// ways are the manners in which a server is away.
var ways = map[string]func(f *fleet, i int){
	"killed": func(f *fleet, i int) { f.reals[i].Kill() },
	"hung":   func(f *fleet, i int) { f.reals[i].Pause(); f.Cleanup(f.reals[i].Resume) },
	"cut":    func(f *fleet, i int) { f.proxies[i].Cut(true, true); f.Cleanup(f.proxies[i].Heal) },
	"deaf":   func(f *fleet, i int) { f.proxies[i].Cut(false, true); f.Cleanup(f.proxies[i].Heal) },
}

// While a minority is away, in whatever manner, locks are granted, renewed, handed over and given back as before.
func TestAMinorityIsAway(t *testing.T) {
	t.Parallel()
	for size, n := range sizes {
		for way, away := range ways {
			t.Run(size+"/"+way, func(t *testing.T) {
				newest(t, n, func(f *fleet) {
					const term = time.Second
					a, b, c := f.open(ttl(term)), f.open(ttl(term)), f.open(ttl(term))
					f.begin(a)
					held := f.lock(a, "held")
					for i := range n / 2 {
						away(f, i)
					}
					// A lock that is held stays held for several terms, by renewals.
					time.Sleep(3 * term)
					redistest.Expect(f, context.Cause(held.Context()), nil, "the lock was lost: %v")
					redistest.WantErr(f, redistest.ErrorOf(b.TryLock(f.Context(), "held")), leasehold.ErrBusy)
					// It is handed over.
					got := f.turn(b, "held")
					f.waiting(c, "held", 1)
					f.unlock(held)
					got.Got()
					// Others come and go.
					began := time.Now()
					for range 10 {
						f.unlock(f.lock(c, "free"))
					}
					redistest.AtMost(f, time.Since(began), 4*time.Second, "ten pairs took %v")
				})
			})
		}
	}
}

// Without a majority nothing is granted, and the caller hears why: at once, or when servers that hang have had their time.
func TestNoMajority(t *testing.T) {
	for _, way := range []string{"killed", "hung"} {
		t.Run(way, func(t *testing.T) {
			newest(t, 3, func(f *fleet) {
				a := f.open(ttl(2 * time.Second))
				f.begin(a)
				l := f.lock(a, "held")
				for _, i := range []int{0, 2} {
					ways[way](f, i)
				}
				began := time.Now()
				redistest.WantErr(f, redistest.ErrorOf(a.TryLock(f.Context(), "k")), leasehold.ErrUnavailable)
				redistest.AtMost(f, time.Since(began), 4*time.Second, "the call took %v")
				redistest.WantErr(f, redistest.ErrorOf(a.Lock(f.Context(), "k")), leasehold.ErrUnavailable)
				redistest.Get(f, "the end of a lock without a majority", l.Context().Done())
				redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrLost)
				redistest.WantErr(f, l.Unlock(), leasehold.ErrLost)
			})
		})
	}
}

// A server that hangs delays Close by the time of a call, and not until the votes there end.
func TestCloseBesideAServerThatHangs(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		a := f.open() // its votes last for 30 s
		f.begin(a)
		l := f.lock(a, "k")
		f.proxies[0].Cut(true, true)
		f.Cleanup(f.proxies[0].Heal)
		f.unlock(l)
		time.Sleep(8 * time.Second) // until the server is known not to answer, and probes overlap
		began := time.Now()
		redistest.NoError(f, a.Close(f.Context()))
		redistest.AtMost(f, time.Since(began), 12*time.Second, "Close took %v")
	})
}

// Close waits for what calls to a single server still do: for a vote that is not given back yet, and
// until the client has looked at the connections that may be broken.
func TestCloseWaitsForWhatCallsBegan(t *testing.T) {
	for name, held := range map[string][]string{"a leave": nil, "a look at connections": {"time"}} {
		t.Run(name, func(t *testing.T) {
			harness.Bubble(t, "quorum", func(f *harness.Fixture) {
				m, one, w := aQuorum(f)
				l := redistest.Must(m.Lock(f.Context(), "k"))(f)
				if held != nil {
					f.BreakIdle(one, w, 2) // a leave comes to one of them
				}
				w.Stall(held...)
				redistest.WantErr(f, l.Unlock())
				closed := make(chan error, 2)
				for range cap(closed) { // the second one does no harm
					go func() { closed <- m.Close(f.Context()) }()
				}
				synctest.Wait()
				redistest.Check(f, len(closed) == 0, "Close did not wait")
				w.Unstall()
				for range cap(closed) {
					redistest.WantErr(f, <-closed)
				}
			})
		})
	}
}

// What waits to be given back to a server that is away ends by itself. Close does not wait for that.
func TestCloseDropsWhatWaitsForAServerThatIsAway(t *testing.T) {
	harness.Bubble(t, "quorum", func(f *harness.Fixture) {
		m, _, w := aQuorum(f)
		l := redistest.Must(m.Lock(f.Context(), "k"))(f)
		w.Refuse()
		redistest.WantErr(f, l.Unlock())
		began := time.Now()
		redistest.WantErr(f, m.Close(f.Context()))
		redistest.AtMost(f, time.Since(began), 5*time.Second, "Close took %v")
	})
}

// A lock that a majority no longer renews says how many servers still do.
func TestALossSaysHowManyServersAnswer(t *testing.T) {
	harness.Bubble(t, "quorum", func(f *harness.Fixture) {
		rdbs := distant(f, 0)
		m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: f.Family}))(f)
		l := redistest.Must(m.Lock(f.Context(), "k"))(f)
		for _, rdb := range rdbs[1:] {
			redistest.WantErr(f, rdb.Close())
		}
		<-l.Context().Done()
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrLost, redistest.Says("1 servers can be counted, of the 2 that are needed"))
		redistest.WantErr(f, m.Close(f.Context()))
	})
}

// A caller that leaves, at its first call, in the queue or as the holder, is no outage of healthy servers.
func TestCallersThatLeaveAreNoOutage(t *testing.T) {
	harness.Bubble(t, "quorum", func(f *harness.Fixture) {
		told := new(harness.Told)
		m := redistest.Must(mutex.NewQuorum(distant(f, 300*time.Millisecond), mutex.Config{Name: f.Family, TTL: 6 * time.Second, Observer: told}))(f)
		leaves := func(key string, after time.Duration) {
			ctx := f.Within(after)
			redistest.WantErr(f, redistest.ErrorOf(m.Lock(ctx, key)), context.DeadlineExceeded)
		}
		leaves("first", 100*time.Millisecond)
		held := redistest.Must(m.Lock(f.Context(), "k"))(f)
		var all sync.WaitGroup
		for i := range 20 {
			early := time.Duration(i) * 50 * time.Millisecond
			all.Go(func() { leaves("k", 1200*time.Millisecond+early) })        // some of them while their signs of life are under way
			l := redistest.Must(m.Lock(f.Context(), fmt.Sprint("free", i)))(f) // renewed after 2 s
			all.Go(func() {
				time.Sleep(1600*time.Millisecond + early)
				redistest.WantErr(f, l.Unlock())
			})
		}
		all.Wait()
		redistest.WantErr(f, held.Unlock())
		redistest.WantErr(f, m.Close(f.Context()))
		redistest.Expect(f, told.Count(leasehold.EventUnavailable, ""), 0, "the Observer is told of %d outages")
	})
}

// Renewals that overlap are answered each by its own replies.
func TestExtendDuringAnExtend(t *testing.T) {
	harness.Bubble(t, "quorum", func(f *harness.Fixture) {
		m := redistest.Must(mutex.NewQuorum(distant(f, 300*time.Millisecond), mutex.Config{Name: f.Family}))(f)
		l := redistest.Must(m.Lock(f.Context(), "k"))(f)
		first := harness.Begin(f, func() error { return l.Extend(f.Context(), 20*time.Second) })
		time.Sleep(200 * time.Millisecond)
		began := time.Now()
		redistest.WantErr(f, l.Extend(f.Context(), 30*time.Second))
		first.Got()
		redistest.AtLeast(f, l.Deadline().Sub(began), 29*time.Second, "the lock lasts for %v")
		redistest.WantErr(f, l.Unlock())
		redistest.WantErr(f, m.Close(f.Context()))
	})
}

// A server that refuses is no reason to give up while one of the others is away for a moment.
func TestAShortAbsenceBesideARefusal(t *testing.T) {
	harness.Bubble(t, "quorum", func(f *harness.Fixture) {
		var faulty atomic.Bool
		rdbs := distant(f, time.Millisecond)
		for i, end := range []error{refusal("NOPERM no rights"), &net.OpError{Op: "dial", Err: errors.New("refused")}} {
			rdbs[i].AddHook(redistest.Around(func(_ context.Context, _ []redis.Cmder, send func() error) error {
				if faulty.Load() {
					return end
				}
				return send()
			}))
		}
		m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: f.Family}))(f)
		redistest.WantErr(f, redistest.Must(m.Lock(f.Context(), "k"))(f).Unlock())
		faulty.Store(true)
		time.AfterFunc(5*time.Second, func() { faulty.Store(false) })
		ctx := f.Within(20 * time.Second)
		led := false
		err := m.Lead(ctx, "k", func(ctx context.Context, _ uint64) error { led = true; <-ctx.Done(); return nil })
		redistest.Check(f, led && errors.Is(err, context.DeadlineExceeded), "Lead gave up: %v", err)
		redistest.WantErr(f, m.Close(f.Context()))
	})
}

// aQuorum makes a handle on three servers. The way to the first one is a wire.
func aQuorum(f *harness.Fixture) (*mutex.Mutex, *redis.Client, *harness.Wire) {
	f.Helper()
	w := &harness.Wire{}
	one := f.Connect(w).(*redis.Client)
	rdbs := distant(f, 0)
	rdbs[0] = one
	m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: f.Family}))(f)
	one.AddHook(w)
	return m, one, w
}
