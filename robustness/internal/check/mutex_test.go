package check

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

func TestMutexInTurn(t *testing.T) {
	s := newStory(t)
	a := s.lock("w1", 0, 1, 7)
	s.write("w1", 2, 3, 7, history.OK)
	s.write("w1", 4, 5, 7, history.OK) // the same token may write again
	s.unlock("w1", a, 10, 15)
	b := s.lock("w2", 5, 12, 8)
	s.write("w2", 13, 14, 8, history.OK)
	s.write("w1", 16, 17, 7, history.Fenced)
	s.unlock("w2", b, 20, 21)
	s.is()
}

func TestMutexTwoHolders(t *testing.T) {
	s := newStory(t)
	a := s.lock("w1", 0, 1, 7)
	b := s.lock("w2", 5, 6, 8)
	s.unlock("w1", a, 10, 15)
	s.unlock("w2", b, 20, 21)
	s.is("model", "cap")
}

func TestMutexTokensOutOfOrder(t *testing.T) {
	for _, token := range []uint64{6, 7} {
		s := newStory(t)
		a := s.lock("w1", 0, 1, 7)
		s.unlock("w1", a, 10, 15)
		b := s.lock("w2", 20, 21, token)
		s.unlock("w2", b, 30, 31)
		s.is("model", "token order")
	}
}

func TestMutexStaleWriteAccepted(t *testing.T) {
	s := newStory(t)
	s.write("w2", 0, 5, 8, history.OK)
	s.write("w1", 3, 6, 7, history.OK) // beside it: may have been the first
	s.lock("w2", 20, 21, 9)
	s.moment(history.Event{Kind: history.Kill, Worker: "w2", At: 30})
	s.is()
	s.write("w1", 10, 11, 7, history.OK)
	redistest.Expect(t, s.is("model", "stale write").Stale, 1, "%d stale writes")
}

func TestMutexWriteRefusedWithoutReason(t *testing.T) {
	s := newStory(t)
	s.lock("w1", 0, 1, 7)
	s.moment(history.Event{Kind: history.Kill, Worker: "w1", At: 30})
	s.write("w1", 2, 3, 7, history.Fenced)
	s.is("model", "refused write")
}

// A write without an answer may have happened, at any time, or not.
func TestMutexUnknownWrite(t *testing.T) {
	for _, last := range []string{history.OK, history.Fenced} {
		s := newStory(t)
		s.lock("w3", 0, 1, 3)
		s.moment(history.Event{Kind: history.Kill, Worker: "w3", At: 1})
		s.write("w2", 0, 5, 8, history.Unavailable)
		s.write("w1", 10, 11, 7, history.OK)
		s.write("w1", 20, 21, 7, last)
		s.is()
		s.write("w1", 30, 31, 7, history.OK)
		if last == history.Fenced {
			s.is("model") // it was refused before: the sweep doesn't see as far
		} else {
			s.is()
		}
	}
}

func TestMutexForgotten(t *testing.T) {
	s := newStory(t)
	a := s.lock("w1", 0, 1, 7)
	s.moment(history.Event{Kind: history.Forget, Key: "m0", At: 5, Until: 6})
	b := s.lock("w2", 5, 8, 9)
	s.unlock("w1", a, 10, 15)
	s.unlock("w2", b, 20, 21)
	redistest.Expect(t, s.is().Overlaps, 1, "%d overlaps")

	s = newStory(t) // of another key
	a = s.lock("w1", 0, 1, 7)
	s.moment(history.Event{Kind: history.Forget, Key: "m1", At: 5, Until: 6})
	b = s.lock("w2", 5, 8, 9)
	s.unlock("w1", a, 10, 15)
	s.unlock("w2", b, 20, 21)
	s.is("model", "cap")
}
