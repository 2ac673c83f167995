package check

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

func TestSemaphoreWithinItsLimit(t *testing.T) {
	s := newStory(t)
	a := s.acquire("w1", 0, 1, 1)
	b := s.acquire("w2", 1, 2, 1)
	s.release("w1", a, 10, 12)
	s.acquire("w3", 5, 11, 1) // within the release, which can have been first
	s.release("w2", b, 20, 21)
	s.moment(history.Event{Kind: history.Kill, Worker: "w3", At: 30})
	c := s.acquire("w1", 40, 41, 2)
	s.release("w1", c, 50, 51)
	s.is()
}

func TestSemaphoreBeyondItsLimit(t *testing.T) {
	s := newStory(t)
	a := s.acquire("w1", 0, 1, 1)
	b := s.acquire("w2", 1, 2, 1)
	c := s.acquire("w3", 3, 4, 1)
	s.release("w1", a, 10, 12)
	s.release("w2", b, 10, 12)
	s.release("w3", c, 10, 12)
	s.is("model", "cap")
}

func TestSemaphorePermitsAreCounted(t *testing.T) {
	s := newStory(t)
	a := s.acquire("w1", 0, 1, 2)
	b := s.acquire("w2", 3, 4, 1)
	s.release("w1", a, 10, 12)
	s.release("w2", b, 10, 12)
	s.is("model", "cap")
}

// A lease ends when its Context does, and the next may be granted from then on,
// not before.
func TestSemaphoreLeaseThatExpires(t *testing.T) {
	for _, x := range []struct {
		granted int64
		broken  []string
	}{{901, nil}, {899, []string{"model", "cap"}}} {
		s := newStory(t)
		a := s.acquire("w1", 0, 1, 2)
		s.ended("w1", a, 900, 900)
		b := s.acquire("w2", 800, x.granted, 2)
		s.release("w1", a, 2000, 2001)
		s.release("w2", b, 3000, 3001)
		s.ended("w2", b, x.granted+500, x.granted+500)
		s.is(x.broken...)
	}
}

// A call that failed may have been granted: that keeps nobody from anything.
func TestSemaphoreUnknownOutcomes(t *testing.T) {
	s := newStory(t)
	s.op("w1", 0, 5, history.Event{Op: history.Acquire, Key: "s0", Permits: 2}, history.Event{Class: history.Unavailable})
	s.op("w2", 0, -1, history.Event{Op: history.Acquire, Key: "s0", Permits: 2}, history.Event{})
	s.moment(history.Event{Kind: history.Kill, Worker: "w2", At: 30})
	a := s.acquire("w3", 1, 2, 2)
	s.release("w3", a, 5, -1) // it was never confirmed
	s.moment(history.Event{Kind: history.Kill, Worker: "w3", At: 30})
	s.acquire("w4", 6, 20, 2)
	s.moment(history.Event{Kind: history.Kill, Worker: "w4", At: 30})
	s.is()
}

// Beyond what the server forgot there is an overlap, which is counted; among what
// was granted after, the limit holds.
func TestSemaphoreForgotten(t *testing.T) {
	s := newStory(t)
	a := s.acquire("w1", 0, 1, 2)
	s.moment(history.Event{Kind: history.Forget, At: 10, Until: 20})
	b := s.acquire("w2", 25, 30, 2)
	s.release("w1", a, 50, 51)
	s.release("w2", b, 60, 61)
	redistest.Expect(t, s.is().Overlaps, 1, "%d overlaps")
	c := s.acquire("w3", 40, 45, 1)
	s.release("w3", c, 70, 71)
	s.is("model", "cap")
}

// What a client says of its own lease.
func TestBelief(t *testing.T) {
	s := newStory(t)
	a := s.op("w1", 0, 1, history.Event{Op: history.Acquire, Key: "s0", Permits: 1}, history.Event{Deadline: 985 * ms})
	s.release("w1", a, 10, 11)
	s.is("deadline") // a TTL of 1 s has a margin of 20 ms

	s = newStory(t)
	a = s.acquire("w1", 0, 1, 1)
	s.op("w1", 500, 501, history.Event{
		Op: history.Release, Key: "s0", For: a, Deadline: 1200 * ms, Ahead: 981 * time.Millisecond,
	}, history.Event{})
	s.is("deadline") // after a renewal

	s = newStory(t)
	a = s.acquire("w1", 0, 1, 1)
	s.ended("w1", a, 1900, 900)
	s.is("belief")
	s.moment(history.Event{Kind: history.Stall, Worker: "w1", At: 800, Until: 1890})
	s.is()

	s = newStory(t)
	a = s.acquire("w1", 0, 1, 1)
	s.op("w1", 1500, 1501, history.Event{Op: history.Release, Key: "s0", For: a, Deadline: 900 * ms}, history.Event{Class: history.Lost})
	s.is("belief")
}

// Nobody believes for long in what is gone.
func TestTold(t *testing.T) {
	for _, x := range []struct {
		until  int64
		broken []string
	}{{1020, nil}, {1021, []string{"told"}}} {
		s := newStory(t)
		a := s.acquire("w1", 0, 1, 1)
		s.moment(history.Event{Kind: history.Forget, Key: "s0", At: 10, Until: 20})
		s.op("w1", x.until, x.until+1, history.Event{Op: history.Release, Key: "s0", For: a, Deadline: 2000 * ms}, history.Event{})
		s.is(x.broken...)
	}
}

// Each key is within its limit; all of them together are not within the total.
func TestTotalOverSeveralKeys(t *testing.T) {
	for _, x := range []struct {
		total  int
		broken []string
	}{{3, nil}, {2, []string{"model", "cap"}}} {
		s := newStory(t)
		s.terms.Total = x.total
		for i, key := range []string{"t0", "t1", "t2"} {
			from := int64(10 * i)
			got := s.op("w1", from, from+1, history.Event{Op: history.Acquire, Key: key, Permits: 1}, history.Event{Deadline: 900 * ms})
			s.op("w1", 50, 51, history.Event{Op: history.Release, Key: key, For: got, Deadline: 900 * ms}, history.Event{})
		}
		s.is(x.broken...)
	}
}
