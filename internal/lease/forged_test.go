package lease

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Whoever may publish can send a waiter what no script ever sends. A result of a
// load is none for who waits for a lock, and ends no wait.
func TestForgedResultIsNoGrant(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Mini(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	m := newLocks(t, rdb, time.Minute)
	l := mustTake(t, m, "k")
	got := waiting(t, t.Context(), m, "k")
	seq := m.seq.Load()
	for _, what := range []string{"S", "Svalue", "H", "A", "F", "X", ""} {
		m.message(fmt.Sprintf("%d %d 0 0 %s", seq, time.Now().UnixMicro(), what))
	}
	select {
	case early := <-got:
		t.Fatalf("the wait ended, with %v, while another holds the lock", early)
	case <-time.After(50 * time.Millisecond):
	}
	if err := l.Release("unlock"); err != nil {
		t.Fatal(err)
	}
	next := <-got
	if next == nil {
		t.Fatal("the waiter failed")
	}
	if err := next.Release("unlock"); err != nil {
		t.Fatal(err)
	}
}

// A grant never lasts longer than what was asked for, whatever the message says.
func TestForgedTermIsBounded(t *testing.T) {
	z := newForged(t)
	z.m.message(fmt.Sprintf("1 %d 9223372036854775807 7", time.Now().UnixMicro()))
	<-z.w.told
	e := z.m.heard(z.w)
	if most := time.Now().Add(z.w.req.TTL); e.kind != granted || e.deadline.After(most) {
		t.Errorf("%+v; want a grant that ends before %v", e, most)
	}
}

// A message about another load than the one that is waited for is old: that wait
// ended otherwise, and another began.
func TestMessageOfAnOlderLoad(t *testing.T) {
	for _, what := range []string{"S", "Hvalue", "F"} {
		z := newForged(t)
		z.wait(t, true)
		z.m.message(fmt.Sprintf("1 %d 0 %d %s", time.Now().UnixMicro(), z.w.req.Awaits-1, what))
		select {
		case <-z.w.told:
			t.Errorf("%s of an older load ended the wait with %+v", what, z.m.heard(z.w))
		default:
		}
		z.m.message(fmt.Sprintf("1 %d 0 %d %s", time.Now().UnixMicro(), z.w.req.Awaits, what))
		select {
		case <-z.w.told:
		default:
			t.Errorf("%s of the load that is waited for ended nothing", what)
		}
	}
}

// forged is a handle with one waiter in a queue, without a server.
type forged struct {
	m *Manager
	w *waiter
}

func newForged(tb testing.TB) *forged {
	tb.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	tb.Cleanup(func() { _ = rdb.Close() })
	m, err := New(rdb, Config{Package: "mutex", Family: keys.Family{Kind: keys.Mutex, Name: "t"}, Fenced: true, TTL: time.Minute})
	if err != nil {
		tb.Fatal(err)
	}
	z := &forged{m: m}
	z.wait(tb, false)
	tb.Cleanup(func() { _ = m.Close(context.Background()) })
	return z
}

// wait makes a waiter of its own, for a lock or for the result of a load, that
// asks for nothing by itself.
func (z *forged) wait(tb testing.TB, flight bool) {
	named, err := z.m.cfg.Family.Resource("k")
	if err != nil {
		tb.Fatal(err)
	}
	res := engine.NewResource(named, true)
	if flight {
		res = engine.NewFlight(named)
	}
	now := time.Now()
	g := &group{m: z.m, res: res, waiters: map[uint64]*waiter{}, asked: now, clock: sample{us: now.UnixMicro(), sent: now, got: now}}
	z.w = &waiter{req: engine.NewRequest(res, z.m.handle, 1, 1, time.Minute, 1), told: make(chan struct{}, 1), group: g}
	z.w.req.Awaits = 7
	g.waiters[1] = z.w
	z.m.mu.Lock()
	defer z.m.mu.Unlock()
	z.m.waiters[1] = z.w
}

// Whatever comes through the inbox ends no process, and a waiter ends only by
// what is meant for its kind: one for a lock by a grant for its TTL at most or a
// refusal, one for a load by its result.
func FuzzForgedMessages(f *testing.F) {
	for _, s := range []string{
		"1 1750000000000000 2000 7", "1 0 -1 7", "1 0 -9223372036854775808 7", "1 9223372036854775807 9223372036854775807 7",
		"1 -9223372036854775808 9223372036854775807 7", "1 1 0 7 S", "1 1 0 0 Svalue", "1 1 0 7 A", "1 1 0 7 F", "1 1 0 7 H\xff\x00", "2 1 1 1", "x",
	} {
		f.Add(s, false)
		f.Add(s, true)
	}
	z := newForged(f)
	f.Fuzz(func(t *testing.T, text string, flight bool) {
		z.wait(t, flight)
		z.m.message(text)
		select {
		case <-z.w.told:
			e := z.m.heard(z.w)
			switch {
			case flight != (e.kind == landed) && e.kind != enterAgain, e.kind == enterAgain && !flight:
				t.Errorf("%q ends a wait (flight: %v) as %+v", text, flight, e)
			case e.kind == granted && e.deadline.After(time.Now().Add(z.w.req.TTL)):
				t.Errorf("%q grants until %v", text, e.deadline)
			}
		default:
		}
		z.m.forget(z.w)
	})
}
