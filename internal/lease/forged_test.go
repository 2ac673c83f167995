package lease_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A waiter is told to enter again, and is granted before it wakes: the grant counts.
// It was lost once, and the waiter slept until its ctx ended.
func TestGrantThatFollowsEnterAgainIsNotLost(t *testing.T) {
	z := newForged(t)
	z.Asked(protocol.Result{})
	z.m.Deliver(protocol.Result{Outcome: life.Outcome{Code: life.Granted, Term: time.Minute}, Seq: 1, Token: 7}, time.Now())
	v, _, told := z.Verdict()
	redistest.Check(t, told && v.Code == life.Granted && v.Token == 7, "the waiter woke for %+v; want its grant", v)
	v, _, told = z.Verdict()
	redistest.Check(t, !told, "the waiter wakes a second time, for %+v", v)
}

// forged is a handle with one waiter in a queue, without a server.
type forged struct {
	m *lease.Manager
	lease.Heard
}

func newForged(tb testing.TB) *forged {
	tb.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	tb.Cleanup(func() { _ = rdb.Close() })
	m := redistest.Must(lease.New(rdb, lockConfig(time.Minute)))(tb)
	z := &forged{m: m}
	z.wait(tb)
	tb.Cleanup(func() {
		z.Forget()
		_ = m.Close(context.Background())
	})
	return z
}

// wait makes a waiter that asks for nothing by itself.
func (z *forged) wait(tb testing.TB) {
	res := redistest.Must(z.m.Resource("k"))(tb)
	z.Heard = z.m.Wait(res, 1)
}

// Whatever comes through the inbox ends no process, and a waiter ends only by a grant for its TTL at most, or a refusal. What
// no script ever sends to a lock is no grant: a client that may publish can have sent it.
func FuzzForgedMessages(f *testing.F) {
	for _, s := range []string{
		"1 1750000000000000 2000 7", "1 0 -1 7", "1 0 -9223372036854775808 7", "1 9223372036854775807 9223372036854775807 7",
		"1 -9223372036854775808 9223372036854775807 7", "1 1 0 7 S", "1 1 0 0 Svalue", "1 1 0 7 A", "1 1 0 7 F", "1 1 0 7 H\xff\x00", "2 1 1 1", "x",
	} {
		f.Add(s)
	}
	for _, what := range []string{"", " S", " Svalue", " H", " A", " F", " X", " 0"} {
		f.Add(fmt.Sprintf("1 %d 2000 7%s", time.Now().UnixMicro(), what))
	}
	z := newForged(f)
	f.Fuzz(func(t *testing.T, text string) {
		z.wait(t)
		z.m.Message(text)
		v, until, told := z.Verdict()
		z.Forget()
		switch {
		case !told, v.Code == life.TooMany:
		case v.Code != life.Granted:
			t.Errorf("%q ends the wait as %+v", text, v)
		case len(strings.Fields(text)) != 4 || until.After(time.Now().Add(time.Minute)):
			t.Errorf("%q grants until %v", text, until)
		}
	})
}

// A message that comes while an attempt enters is not believed: there is no sample of the
// server's clock to judge it by.
func TestMessageWhileItEntersIsNotBelieved(t *testing.T) {
	z := newForged(t)
	z.Asked(protocol.Result{})
	z.Verdict()
	z.m.Message(fmt.Sprintf("1 %d 2000 7", time.Now().UnixMicro()))
	v, _, told := z.Verdict()
	redistest.Check(t, !told, "the waiter wakes for %+v", v)
}

// The reply that was lost while a waiter entered may have carried its grant, and the ask that
// followed ran before it joined its group.
func TestWaiterThatJoinsAfterALossAsks(t *testing.T) {
	for _, lost := range []bool{false, true} {
		z := newForged(t)
		res := redistest.Must(z.m.Resource("other"))(t)
		redistest.Expect(t, z.m.AsksAfterJoin(res, lost), lost, "a reply was lost: %v; the waiter asks at once: %v", lost)
	}
}
