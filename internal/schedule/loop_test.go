package schedule

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var script = call.NewScript("test", "return 1")

// clockwork is a task that is due every so often and notes when it was called.
type clockwork struct {
	Entry
	every, slack time.Duration
	left         int // calls that it still wants; -1 = no end
	dues         []time.Time
}

func (c *clockwork) Due(now time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	c.dues = append(c.dues, now)
	if c.left > 0 {
		c.left--
	}
	next := now.Add(c.every)
	if c.left == 0 {
		next = time.Time{}
	}
	one := call.New(script, 1, "key")
	one.Done = func([]int64, error) {}
	return append(calls, one), next, c.slack
}

// sent notes the sizes of batches, and answers at once.
type sent struct{ sizes []int }

func (s *sent) Start(_ context.Context, _ *sync.WaitGroup, calls ...*call.Call) {
	s.sizes = append(s.sizes, len(calls))
	for _, c := range calls {
		c.Done(nil, nil)
	}
}

// inBubble runs fn with a loop in a bubble.
func inBubble(t *testing.T, fn func(t *testing.T, l *Loop, s *sent)) {
	synctest.Test(t, func(t *testing.T) {
		var s sent
		fn(t, New(&s), &s)
	})
}

// A task that is due within its slack goes out with the first that is due.
func TestDueTogetherGoesTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, l *Loop, s *sent) {
		now := time.Now()
		for i := range 10 {
			c := &clockwork{left: 1}
			l.Put(&c.Entry, c, now.Add(time.Second+time.Duration(i)*100*time.Millisecond), 500*time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		redistest.Check(t, slices.Equal(s.sizes, []int{6, 4}), "batches of %v; want 6 (one due, five within their slack) and 4", s.sizes)
		l.Close()
	})
}

// An entry that comes later and is due earlier moves the timer.
func TestEarlierEntryIsNotLate(t *testing.T) {
	inBubble(t, func(t *testing.T, l *Loop, _ *sent) {
		now := time.Now()
		late, early := &clockwork{left: 1}, &clockwork{left: 1}
		l.Put(&late.Entry, late, now.Add(time.Hour), 0)
		l.Put(&early.Entry, early, now.Add(time.Second), 0)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		redistest.Check(t, len(early.dues) == 1 && early.dues[0].Equal(now.Add(time.Second)) && len(late.dues) == 0,
			"due at %v and %v; want one after a second", early.dues, late.dues)
		l.Close()
	})
}

// The timer rests when it has found nothing to do, without Close.
func TestIdleLoopRests(t *testing.T) {
	inBubble(t, func(t *testing.T, l *Loop, _ *sent) {
		for range 3 {
			c := &clockwork{left: -1, every: time.Hour}
			l.Put(&c.Entry, c, time.Now().Add(time.Second), 0)
			l.Remove(&c.Entry)
			time.Sleep(time.Second)
			synctest.Wait()
			redistest.CheckNow(t, !l.set && len(c.dues) == 0, "the timer is set, or a removed task was due %d times", len(c.dues))
		}
	})
}

// A task that is due without pause does not keep the loop from anything else.
func TestEagerTaskIsPaced(t *testing.T) {
	inBubble(t, func(t *testing.T, l *Loop, _ *sent) {
		c := &clockwork{left: -1}
		l.Put(&c.Entry, c, time.Now(), 0)
		time.Sleep(100 * time.Millisecond)
		l.Remove(&c.Entry)
		synctest.Wait()
		redistest.AtMost(t, len(c.dues), 110, "due %d times in 100 ms")
		l.Close()
	})
}

// Whatever is put, moved and removed, everything is due in order, once.
func TestScheduleKeepsOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(redistest.Seed(t), 1))
	var s entries
	all := make([]Entry, 300)
	want := map[*Entry]time.Duration{}
	for range 5000 {
		e := &all[rng.IntN(len(all))]
		if rng.IntN(3) == 0 {
			s.take(e)
			delete(want, e)
			continue
		}
		e.at = time.Duration(rng.IntN(1000)) * time.Millisecond
		s.put(e)
		want[e] = e.at
	}
	redistest.Require(t, len(s), len(want), "%d are scheduled")
	for last := time.Duration(0); len(s) > 0; {
		e := s[0]
		redistest.CheckNow(t, e.at >= last && want[e] == e.at, "%v comes after %v", e.at, last)
		last = e.at
		s.take(e)
		delete(want, e)
	}
}

// A task that is due again within a millisecond is not late by one: it may be a
// lease's end.
func TestDueAgainSoonIsNotLate(t *testing.T) {
	inBubble(t, func(t *testing.T, l *Loop, _ *sent) {
		at := time.Now().Add(time.Second)
		c := &clockwork{left: 2, every: 100 * time.Microsecond}
		l.Put(&c.Entry, c, at, 0)
		time.Sleep(3 * time.Second)
		l.Close()
		redistest.Check(t, len(c.dues) == 2 && c.dues[1].Equal(at.Add(c.every)),
			"to be due at %v, and %v later; was at %v", at, c.every, c.dues)
	})
}

// Close while a task is in Due makes that task due again at once, not when it said. It makes another
// one due, too, but not beside the first.
func TestCloseDuringDueIsNotForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, l *Loop, _ *sent) {
		var inside atomic.Int32
		closed := make(chan struct{})
		c := &closing{inside: &inside, end: func() {
			l.Close()
			close(closed)
		}}
		other := &closing{inside: &inside, dues: 1}
		l.Put(&c.Entry, c, time.Now().Add(time.Second), 0)
		l.Put(&other.Entry, other, time.Now().Add(time.Hour), 0)
		began := time.Now()
		<-closed
		redistest.AtMost(t, time.Since(began), 2*time.Second, "Close took %v, from a second on")
		redistest.Check(t, other.dues == 2 && !other.beside, "the other task was due %d times; beside the first: %v", other.dues-1, other.beside)
	})
}

// closing is a task during whose first Due the loop is closed.
type closing struct {
	Entry
	end    func()
	dues   int
	inside *atomic.Int32 // how many tasks are in Due
	beside bool          // it was in Due together with another one
}

func (c *closing) Due(now time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	c.beside = c.inside.Add(1) > 1
	defer c.inside.Add(-1)
	if c.dues++; c.dues == 1 {
		go c.end()
		time.Sleep(time.Millisecond) // in the bubble: until all others are blocked
		return calls, now.Add(time.Hour), 0
	}
	return calls, time.Time{}, 0
}
