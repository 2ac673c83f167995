package check

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

func TestCacheInOrder(t *testing.T) {
	s := newStory(t)
	a := s.read("w1", 0, 10, "w1.2")
	s.load("w1", a, 1, 9)
	s.read("w2", 2, 20, "w1.2")
	s.invalidate("w2", 8, 15, history.OK) // beside the load: the waiting may have it
	s.read("w2", 14, 30, "w1.2")          // came before that returned
	b := s.read("w1", 40, 50, "w1.7")
	s.load("w1", b, 41, 49)
	s.is()
}

func TestCacheStaleRead(t *testing.T) {
	s := newStory(t)
	a := s.read("w1", 0, 10, "w1.2")
	s.load("w1", a, 1, 9)
	s.invalidate("w2", 11, 15, history.OK)
	s.read("w2", 16, 30, "w1.2")
	s.is("model", "stale read")
}

// The model sees one moment at which an Invalidate takes effect for all; the sweep
// compares only pairs.
func TestCacheInvalidationIsOneMoment(t *testing.T) {
	s := newStory(t)
	a := s.read("w1", 0, 10, "w1.2")
	s.load("w1", a, 1, 9)
	s.invalidate("w2", 20, 100, history.OK)
	b := s.read("w1", 30, 40, "w1.5")
	s.load("w1", b, 31, 39)
	s.read("w2", 60, 61, "w1.2")
	s.read("w2", 110, 111, "w1.5")
	s.is("model")
}

// An Invalidate without an answer may have happened or not.
func TestCacheUnknownInvalidation(t *testing.T) {
	s := newStory(t)
	a := s.read("w1", 0, 10, "w1.2")
	s.load("w1", a, 1, 9)
	s.invalidate("w2", 11, 15, history.Unavailable)
	s.read("w2", 16, 30, "w1.2")
	b := s.read("w1", 40, 50, "w1.6")
	s.load("w1", b, 41, 49)
	s.is()
}

func TestCacheValueFromNowhere(t *testing.T) {
	s := newStory(t)
	s.read("w1", 0, 10, "w1.99")
	s.is("model", "stale read")
}

func TestCacheValueBeforeItsLoad(t *testing.T) {
	s := newStory(t)
	a := s.read("w1", 0, 10, "w1.2")
	s.load("w1", a, 20, 29)
	s.is("model")
}

func TestCacheTwoBuilders(t *testing.T) {
	for _, x := range []struct {
		what     string
		does     func(s *story, load int)
		rules    []string
		overlaps int
	}{
		{"both may store", func(*story, int) {}, []string{"builds"}, 0},
		{"one may have been invalidated", func(s *story, _ int) { s.invalidate("w3", 3, 4, history.Timeout) }, nil, 0},
		{"it was told to end", func(s *story, load int) { s.ended("w1", load, 4, 0) }, nil, 0},
		{"it could not be told", func(s *story, _ int) { s.moment(history.Event{Kind: history.Stop, Worker: "w1", At: 3, Until: 4}) }, nil, 0},
		{"it was forgotten", func(s *story, _ int) { s.moment(history.Event{Kind: history.Forget, Key: "c0", At: 2, Until: 3}) }, nil, 1},
	} {
		t.Run(x.what, func(t *testing.T) {
			s := newStory(t)
			load := s.load("w1", s.read("w1", 0, 10, ""), 1, 9)
			s.load("w2", s.read("w2", 0, 10, ""), 5, 7)
			x.does(s, load)
			redistest.Expect(t, s.is(x.rules...).Overlaps, x.overlaps, "%d overlaps")
		})
	}
}

// A failover may bring back what was invalidated, until the next Invalidate.
func TestCacheRevived(t *testing.T) {
	s := newStory(t)
	a := s.read("w1", 0, 10, "w1.2")
	s.load("w1", a, 1, 9)
	s.invalidate("w2", 11, 15, history.OK)
	s.moment(history.Event{Kind: history.Forget, Revives: true, At: 20, Until: 25})
	s.read("w2", 30, 31, "w1.2")
	redistest.Expect(t, s.is().Overlaps, 1, "%d overlaps")
	s.invalidate("w2", 40, 41, history.OK)
	s.read("w2", 50, 51, "w1.2")
	s.is("model", "stale read")
}
