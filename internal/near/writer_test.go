package near

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// openInbox is an inbox that has been listening for long.
type openInbox struct{}

func (openInbox) Watch(string) time.Time { return time.Unix(1, 0) }
func (openInbox) Unwatch(string)         {}
func (openInbox) Close()                 {}

// countingInbox is an openInbox that counts the keys that are watched.
type countingInbox struct {
	openInbox
	watched atomic.Int32
}

func (b *countingInbox) Watch(key string) time.Time { b.watched.Add(1); return b.openInbox.Watch(key) }
func (b *countingInbox) Unwatch(string)             { b.watched.Add(-1) }

// A writer that has waited listens on for half of NearFor.
func TestWriterListensOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inbox := &countingInbox{}
		w := newTestWriter()
		w.line.inbox, w.line.cache = inbox, &Cache{cfg: Config{For: time.Second}}
		told := w.Begin()
		w.Replied(told, "k", time.Now(), listed("a"))
		await(t, w, told)
		time.Sleep(499 * time.Millisecond)
		redistest.Expect(t, inbox.watched.Load(), 1, "%d keys are watched before half of NearFor is over")
		time.Sleep(2 * time.Millisecond)
		redistest.Expect(t, inbox.watched.Load(), 0, "%d keys are watched after it")
	})
}

func newTestWriter() *Writer {
	l := &Line{handle: "writer", inbox: openInbox{}}
	l.Writer = newWriter(l)
	return l.Writer
}

// lasts is shorter than it takes until readers are told again.
const lasts = tellAgain / 2

func listed(readers ...string) (d loads.Dropped) {
	for _, r := range readers {
		d.Readers = append(d.Readers, loads.Reader{Handle: r, Lasts: lasts})
	}
	return d
}

// await returns how long an Await takes, in a bubble.
func await(t *testing.T, w *Writer, all ...*Told) time.Duration {
	t.Helper()
	began := time.Now()
	redistest.Check(t, w.Await(all, nil, nil), "the wait ended before its time")
	for _, told := range all {
		w.End(told)
	}
	return time.Since(began)
}

// An acknowledgement counts for the call whose number it names, and for the reader that sent it;
// also if it comes before the reply to the call.
func TestWriterCountsByNumberAndReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWriter()
		first, second := w.Begin(), w.Begin()
		redistest.CheckNow(t, first != second && first.Ack.Number != second.Ack.Number, "two calls have one number")
		w.acknowledged("b", second.Ack.Number)
		for _, told := range []*Told{first, second} {
			w.Replied(told, "k", time.Now(), listed("a", "b"))
		}
		w.acknowledged("a", first.Ack.Number)
		w.acknowledged("b", first.Ack.Number)
		redistest.Expect(t, await(t, w, first), 0, "a wait for readers that had acknowledged took %v")
		redistest.Expect(t, await(t, w, second), lasts, "a wait for a reader that had acknowledged an earlier call took %v")
		third := w.Begin()
		w.Replied(third, "k", time.Now(), listed("a", "b"))
		go func() {
			time.Sleep(time.Millisecond)
			w.acknowledged("a", third.Ack.Number)
			w.acknowledged("c", third.Ack.Number)
			time.Sleep(time.Millisecond)
			w.acknowledged("b", third.Ack.Number)
		}()
		redistest.Expect(t, await(t, w, third), 2*time.Millisecond, "the wait took %v; want until the last acknowledgement")
		redistest.Expect(t, len(w.calls), 0, "%d calls are left")
	})
}

// Readers that are too many to be listed are waited out.
func TestWriterWaitsForReadersThatAreNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWriter()
		told := w.Begin()
		d := listed("a")
		d.Rest = 2 * time.Second
		w.Replied(told, "k", time.Now(), d)
		w.acknowledged("a", told.Ack.Number)
		redistest.Expect(t, await(t, w, told), 2*time.Second, "it took %v; want 2 s")
	})
}

// The readers of a call that told them nothing are told by another one. A call that found none
// leaves nothing to wait for.
func TestWriterHasReadersTold(t *testing.T) {
	t.Parallel()
	w := newTestWriter()
	if told := w.Replied(nil, "k", time.Now(), listed("a")); told == nil || !told.tell {
		t.Errorf("a call without a number is %+v", told)
	}
	told := w.Begin()
	got := w.Replied(told, "k", time.Now(), listed("a"))
	redistest.Check(t, got == told && !told.tell, "a call with a number is %+v", got)
	w.End(told)
	got = w.Replied(w.Begin(), "k", time.Now(), loads.Dropped{})
	redistest.Check(t, got == nil && len(w.calls) == 1, "a call that found nobody is %+v, with %d calls", got, len(w.calls))
}
