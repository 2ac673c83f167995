package lease_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A handle whose map of the server's clock is off learns it anew from the
// reply, and goes on.
func TestWrongClockIsLearnedAnew(t *testing.T) {
	inBubble(t, time.Minute, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
		redistest.WantErr(t, mustTake(t, m, "k").Release("unlock")) // the server's version is known
		rec := record(rdb)
		m.MissClock(time.Now().Add(-time.Hour))
		l := mustTake(t, m, "k")
		redistest.Expect(t, rec.count("enter"), 2, "%d enters; want the void one and another")
		redistest.Between(t, m.ClockIsOffBy(), -time.Second, time.Second, "the clock is still off by %v")
		redistest.Expect(t, rec.count("time"), 0, "TIME was asked %d times although there was a map")
		redistest.NoError(t, l.Release("unlock"))
	})
}

// A fresh handle asks for the time once, before its first enter: no enter is
// sent without a void time.
func TestFirstEnterHasAVoidTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		warm(t, client())
		rdb := client() // the handles of one client share what they know of the clock
		m, rec := newLocks(t, rdb, time.Minute), record(rdb)
		rec.spoilWith(func(cmd redis.Cmder) error {
			if script(cmd) == "enter" {
				void, server := *cmd.Args()[11].(*int64), time.Now().UnixMicro()
				d := time.Duration(void-server) * time.Microsecond
				redistest.Check(t, d > 0 && d <= life.VoidAfter, "an enter is void after %v; want within %v", d, life.VoidAfter)
			}
			return nil
		})
		for range 3 {
			redistest.NoError(t, mustTake(t, m, "k").Release("unlock"))
		}
		redistest.Expect(t, rec.count("time"), 1, "TIME was asked %d times; want once")
	})
}

// A leave handed the permit to a waiter of its own process, and its reply was lost: the waiter asks at once, not when its
// next sign of life is due.
func TestGrantInALostReplyIsAskedForAtOnce(t *testing.T) {
	inBubble(t, time.Minute, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
		l := mustTake(t, m, "k")
		got := waiting(t, t.Context(), m, "k")
		synctest.Wait() // the question that follows the subscription is over, or it would do
		lost := false
		record(rdb).reply = func(cmd redis.Cmder) error {
			if script(cmd) == "leave" && !lost {
				lost = true
				return errCut
			}
			return nil
		}
		began := time.Now()
		redistest.Expect(t, l.Release("unlock"), nil, "release: %v; want nil, the outcome cannot be known")
		next := <-got
		redistest.CheckNow(t, next != nil, "the waiter failed")
		redistest.AtMost(t, time.Since(began), life.AskEvery/2, "the waiter learned of its grant after %v")
		redistest.Check(t, next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
	})
}

// The reply to an enter that its caller gave up may carry a grant for
// another waiter of the process.
func TestReplyIsProcessedAfterItsCallerLeft(t *testing.T) {
	inBubble(t, time.Minute, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
		res := redistest.Must(m.Resource("k"))(t)
		// A holder that is dead: its lease ends by itself.
		dead := res.Request(protocol.Terms{Handle: strings.Repeat("d", 22), Seq: 1, Permits: 1, TTL: time.Second, Limit: 1})
		redistest.WantErr(t, redistest.ErrorOf(m.Client().Do(t.Context(), dead.Enter(protocol.EnterOptions{}))))
		ended := time.Now().Add(time.Second + time.Millisecond)
		got := waiting(t, t.Context(), m, "k")
		time.Sleep(time.Until(ended))
		enters, asks := make(chan struct{}), make(chan struct{})
		record(rdb).reply = func(cmd redis.Cmder) error {
			switch script(cmd) {
			case "enter":
				<-enters
			case "ask":
				<-asks
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := take(ctx, m, "k")
			gone <- err
		}()
		synctest.Wait()
		cancel()
		redistest.WantErr(t, <-gone, context.Canceled)
		select {
		case <-got:
			t.Error("the waiter knows of its grant though every reply is held up")
		default:
		}
		close(enters)
		synctest.Wait()
		select {
		case l := <-got:
			_ = l.Release("unlock")
		default:
			t.Error("the grant in the abandoned reply did not reach its waiter")
		}
		close(asks)
	})
}

// A lease that ended by its local deadline is not given back before its
// holder has stopped, which Release says.
func TestNothingIsGivenBackAtTheDeadline(t *testing.T) {
	inBubble(t, 10*time.Second, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
		rec := record(rdb)
		l := mustTake(t, m, "k")
		rec.spoilWith(func(redis.Cmder) error { return errCut })
		<-l.Context().Done()
		cause := context.Cause(l.Context())
		redistest.Check(t, errors.Is(cause, leasehold.ErrLost) && strings.Contains(cause.Error(), errCut.Error()), "cause %v; want ErrLost and why", cause)
		rec.spoilWith(nil)
		time.Sleep(100 * time.Millisecond) // within the margin
		redistest.Require(t, rec.count("leave"), 0, "%d leaves were sent for a holder that may still be stopping")
		redistest.WantErr(t, l.Release("unlock"), leasehold.ErrLost)
		synctest.Wait()
		redistest.Expect(t, rec.count("leave"), 1, "%d leaves after Release")
	})
}

// The deadline is counted from the sending, whatever the reply took.
func TestDeadlineCountsFromTheSending(t *testing.T) {
	inBubble(t, 10*time.Second, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
		mustTake(t, m, "warm")
		rec := record(rdb)
		rec.spoilWith(func(cmd redis.Cmder) error { time.Sleep(2 * time.Second); return nil })
		sent := time.Now()
		l := mustTake(t, m, "k")
		redistest.AtMost(t, l.Deadline().Sub(sent), 10*time.Second-life.Margin(10*time.Second), "the deadline lies %v after the sending")
		// A renewal likewise.
		before := l.Deadline()
		sent = time.Now()
		l.Renewed(sent.Add(-5*time.Second), []int64{10_000}, nil)
		d := l.Deadline().Sub(sent)
		redistest.Check(t, d <= 5*time.Second || l.Deadline() == before, "renewed at -5s the deadline lies %v from now", d)
	})
}

// With a message, it is counted from the grant by the server's clock, and
// never beyond the term from now, should that clock have jumped; nor beyond what
// was asked for, whatever the message says.
func TestDeadlineOfAMessage(t *testing.T) {
	const ttl, term = time.Minute, 10 * time.Second
	for _, c := range []struct {
		name    string
		term    time.Duration
		granted time.Duration // by the server's clock, against now
		want    time.Duration // deadline from now; 0 = not believed
	}{
		{"just now", term, 0, term - life.Margin(term)},
		{"a while ago", term, -1500 * time.Millisecond, 8500*time.Millisecond - life.Margin(term)},
		{"clock jumped ahead", term, time.Hour, term - life.Margin(term)},
		{"over", term, -term, 0},
		{"within the margin", term, life.Margin(term) - term, 0},
		{"more than was asked for", time.Hour, 0, ttl - life.Margin(ttl)},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, ttl, func(t *testing.T, _ *redis.Client, m *lease.Manager) {
				holder := mustTake(t, m, "k")
				got := waiting(t, t.Context(), m, "k")
				now := time.Now()
				m.Message(strings.Join([]string{
					strconv.FormatUint(m.LastSeq(), 10), strconv.FormatInt(now.Add(c.granted).UnixMicro(), 10),
					strconv.FormatInt(c.term.Milliseconds(), 10), "9",
				}, " "))
				synctest.Wait()
				select {
				case l := <-got:
					d := l.Deadline().Sub(now)
					redistest.Check(t, c.want != 0 && d <= c.want && d >= c.want-time.Second, "deadline %v from now; want %v", d, c.want)
				default:
					redistest.Check(t, c.want == 0, "the grant was not believed")
				}
				_ = holder.Release("unlock")
			})
		})
	}
}

// Where calls take long beside the first term of a grant, the caller gets the lease once it was renewed. If its ctx ends
// before, it is told that a call was under way.
func TestGrantIsRenewedFirstWhereCallsTakeLong(t *testing.T) {
	inBubble(t, time.Minute, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
		holder := mustTake(t, m, "k")
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan error, 1)
		go func() { told <- redistest.ErrorOf(take(ctx, m, "k")) }()
		synctest.Wait()
		rec := record(rdb)
		rec.spoilWith(func(redis.Cmder) error { time.Sleep(time.Second); return nil })
		time.Sleep(2 * life.AskEvery) // the clock is known well, and an ask has taken a second
		m.Message(fmt.Sprintf("%d %d 2000 9", m.LastSeq(), time.Now().UnixMicro()))
		synctest.Wait()
		redistest.Check(t, len(told) == 0, "the caller has a lease that may be over before a renewal is answered")
		cancel()
		redistest.WantErr(t, <-told, context.Canceled, leasehold.ErrUnavailable, redistest.Not(leasehold.ErrBusy))
		rec.spoilWith(nil)
		redistest.WantErr(t, holder.Release("unlock"))
	})
}

// The margin is never less than the contract says.
func TestMargin(t *testing.T) {
	for _, ttl := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, time.Second, time.Minute} {
		least := max(10*time.Millisecond, ttl/50)
		redistest.Check(t, life.Margin(ttl) >= least, "life.Margin(%v) = %v; want at least %v", ttl, life.Margin(ttl), least)
	}
}

// All waiters of a handle on a key give their sign of life together.
func TestOneAskForAllWaiters(t *testing.T) {
	inBubble(t, time.Minute, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
		l := mustTake(t, m, "k")
		ctx, cancel := context.WithCancel(t.Context())
		var all []<-chan *lease.Lease
		for range 200 {
			all = append(all, waiting(t, ctx, m, "k"))
		}
		rec := record(rdb)
		const span = 15 * time.Second
		time.Sleep(span)
		n, most := rec.count("ask"), int(span/(life.AskEvery*9/10))+1
		redistest.Check(t, n <= most && n >= most/2, "%d asks in %v for %d waiters; want about %d", n, span, len(all), most)
		// And nobody lost their place meanwhile.
		redistest.Expect(t, rec.count("enter"), 0, "%d waiters entered again")
		cancel()
		for _, got := range all {
			redistest.CheckNow(t, <-got == nil, "a cancelled waiter got the lock")
		}
		_ = l.Release("unlock")
	})
}

// A waiter that was away for longer than its sign of life keeps its place.
func TestWaiterThatWasAwayKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		here, there := client(), client()
		rec := record(here)
		m, other := newLocks(t, here, time.Minute), newLocks(t, there, time.Minute)
		l := mustTake(t, other, "k")
		first := waiting(t, t.Context(), m, "k")
		second := waiting(t, t.Context(), other, "k")
		rec.spoilWith(func(redis.Cmder) error { return errCut })
		time.Sleep(8 * time.Second) // dropped after 4.5 s
		rec.spoilWith(nil)
		time.Sleep(2 * life.AskEvery)
		_ = l.Release("unlock")
		synctest.Wait()
		var order []string
		select {
		case l := <-first:
			order = append(order, "first")
			_ = l.Release("unlock")
		default:
		}
		synctest.Wait()
		if l := <-second; l != nil {
			order = append(order, "second")
			_ = l.Release("unlock")
		}
		redistest.Check(t, slices.Equal(order, []string{"first", "second"}), "served %v; want the one that was away first", order)
	})
}

// A call that stands in the queue of its server is not made a second time, and a hint that
// comes meanwhile is not forgotten.
func TestOneCallAtATime(t *testing.T) {
	inBubble(t, time.Minute, func(t *testing.T, _ *redis.Client, m *lease.Manager) {
		l := mustTake(t, m, "k")
		first, second := l.DueNow(), l.DueNow()
		redistest.Check(t, first == 1 && second == 0, "%d renewals, then %d; want one", first, second)
		res := redistest.Must(m.Resource("k"))(t)
		h := m.Wait(res, 1<<40)
		first, second = h.DueNow(), h.DueNow()
		redistest.Check(t, first == 1 && second == 0, "%d asks, then %d; want one", first, second)
		now := time.Now()
		at := h.Hint(now)
		redistest.Check(t, !at.After(now), "asks %v after a hint; want an ask as soon as the one under way is answered", at.Sub(now))
		redistest.Check(t, h.DueNow() == 0 && !h.Hint(now.Add(time.Hour)).After(now), "a hint during an ask was forgotten")
		redistest.Expect(t, m.LeavesDue(res), 1, "%d leaves; want one")
		h.Forget()
		redistest.NoError(t, l.Release("unlock"))
	})
}

// moreToDo is a protocol in which each enter stops at a bound.
type moreToDo struct{ permits.Family }

type moreResource struct{ protocol.Resource }

type moreRequest struct{ protocol.Request }

func (f moreToDo) Resource(key string) (protocol.Resource, error) {
	r, err := f.Family.Resource(key)
	return moreResource{r}, err
}

func (r moreResource) Request(t protocol.Terms) protocol.Request {
	return moreRequest{r.Resource.Request(t)}
}
func (r moreResource) GoOn(string) *call.Call { return r.Ask(nil) }
func (r moreRequest) ReadEnter(c *call.Call, reply []int64) (protocol.Reply, error) {
	got, err := r.Request.ReadEnter(c, reply)
	got.More = true
	return got, err
}

// A hook of the client ends the goroutine that goes on where an enter stopped: the next enter's goes on.
func TestHookThatEndsAContinuation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		rdb := client()
		warm(t, rdb)
		cfg := lockConfig(time.Minute)
		cfg.Protocol = moreToDo{cfg.Protocol.(permits.Family)}
		m := redistest.Must(lease.New(rdb, cfg))(t)
		sent := record(rdb)
		for i := range 2 {
			sent.spoilWith(func(cmd redis.Cmder) error {
				if script(cmd) == "ask" && i == 0 {
					runtime.Goexit()
				}
				return nil
			})
			l := mustTake(t, m, fmt.Sprint(i))
			synctest.Wait()
			redistest.Expect(t, sent.count("ask"), i+1, "the handle went on %d times")
			redistest.WantErr(t, l.Release("unlock"))
		}
		redistest.WantErr(t, m.Close(t.Context()))
	})
}

// A token is not taken for one that is ahead of the clock because the process stood still: then a
// kept lease would go back, and its process would queue behind it.
func TestTokenIsNotAheadOfTheClockOfAProcessThatStoodStill(t *testing.T) {
	inBubble(t, time.Minute, func(t *testing.T, _ *redis.Client, m *lease.Manager) {
		l := mustTake(t, m, "k")
		m.StandsStill()
		redistest.Check(t, !l.TokenAheadOfClock(), "the token is taken for one that is ahead of the clock")
		redistest.WantErr(t, l.Release("unlock"))
	})
}
