package near

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A copy that is not in the table is never found without its mark, whatever goes on at the same time.
func TestTableFindsNothingThatWasTakenOut(t *testing.T) {
	t.Parallel()
	s := store{table: newTable(), most: 1 << 20}
	const keys = 500
	slots := make([]*slot, keys)
	for i := range slots {
		slots[i] = &slot{Key: Key{Name: strconv.Itoa(i)}}
	}
	var removed [keys]atomic.Pointer[Copy] // the last one taken out, of each key
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for !done.Load() {
				i := rand.IntN(keys)
				gone := removed[i].Load()
				c := s.get(strconv.Itoa(i))
				redistest.Check(t, c == nil || c != gone || c.dropped.Load(), "key %d: a copy that was taken out is found without its mark", i)
			}
		})
	}
	for range 200_000 {
		i := rand.IntN(keys)
		if c := slots[i].copy; c != nil && rand.IntN(2) == 0 {
			s.remove(c)
			removed[i].Store(c)
			continue
		}
		old := slots[i].copy
		s.add(&Copy{slot: slots[i], size: overhead}, func(out *Copy) {})
		if old != nil {
			removed[i].Store(old)
		}
	}
	done.Store(true)
	readers.Wait()
	n := 0
	for c := s.hand; c != nil && (n == 0 || c != s.hand); c = c.next {
		n++
		redistest.Check(t, s.get(c.slot.Name) == c, "the copy of %s is in the ring and not in the table", c.slot.Name)
	}
	redistest.Check(t, n == s.count && s.bytes == n*overhead, "%d copies in the ring, %d in the table, %d bytes", n, s.count, s.bytes)
}

// The store stays within its bytes, and keeps what is used.
func TestStoreKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	s := store{table: newTable(), most: 100 * overhead}
	hot := &Copy{slot: &slot{Key: Key{Name: "hot"}}, size: overhead}
	s.add(hot, func(*Copy) {})
	for i := range 10_000 {
		hot.used.Store(true)
		size := overhead * (1 + i%5)
		s.add(&Copy{slot: &slot{Key: Key{Name: fmt.Sprint(i)}}, size: size}, func(out *Copy) {
			redistest.CheckNow(t, out != hot && out.dropped.Load() && s.get(out.slot.Name) != out,
				"%s was taken out, marked %v", out.slot.Name, out.dropped.Load())
		})
		redistest.CheckNow(t, s.bytes <= s.most, "%d bytes; want at most %d", s.bytes, s.most)
	}
	redistest.Check(t, s.get("hot") == hot, "a copy that was used all the time is gone")
	redistest.Check(t, !s.fits(s.most), "a copy as large as the store fits")
}

// The size of a copy counts all names that are kept, also those that escaping makes long.
func TestSizeCountsEveryName(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"k", strings.Repeat("x", keys.MaxLen), strings.Repeat(":", keys.MaxLen)} {
		r := redistest.Must(keys.Family{Kind: keys.Flight, Name: "users"}.Resource(key))(t)
		k, near := Key{Resource: r, Name: key, Value: loads.Part(r, "value", 0)}, loads.Near(r)
		names := []string{k.Name, k.Value, near, strings.TrimSuffix(near, "near")}
		alone := overhead + len(strings.Join(names, ""))
		names = append(names, near, keys.InboxAt(near, ""))
		together := overhead + inCluster + len(strings.Join(names, ""))
		redistest.Check(t, sizeOf(k, 0, false) >= alone && sizeOf(k, 0, true) >= together,
			"a key of %d bytes takes %d, on a Cluster %d; want at least %d and %d",
			len(key), sizeOf(k, 0, false), sizeOf(k, 0, true), alone, together)
	}
}

// Two keys of the same set that are read in turn do not hide each other. Reads that are further apart than the window do
// not add up, and a key that is forgotten starts anew.
func TestDoorCountsWithinTheWindow(t *testing.T) {
	t.Parallel()
	d := newDoor(MinBytes, time.Second)
	const one, other = uint64(1) << 40, uint64(2) << 40 // of the same set
	for i := range registerAt {
		for _, hash := range []uint64{one, other} {
			redistest.Expect(t, d.knock(hash, 0), i == registerAt-1, "of two keys one is hot at read %d: %v", i+1)
		}
	}
	for i := range int64(100) {
		redistest.CheckNow(t, !d.knock(7, i*int64(time.Second)*2/5), "hot at three reads per window, at read %d", i)
	}
	d.forget(one)
	redistest.Check(t, !d.knock(one, 0) && d.knock(other, 0), "after it was forgotten a key is hot at once, or another is not")
}

// openInbox is an inbox that has been listening for long. It counts the keys that are watched.
type openInbox struct{ watched atomic.Int32 }

func (b *openInbox) Watch(string) time.Time { b.watched.Add(1); return time.Unix(1, 0) }
func (b *openInbox) Unwatch(string)         { b.watched.Add(-1) }
func (b *openInbox) Close()                 {}

// A writer that has waited listens on for half of NearFor.
func TestWriterListensOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWriter()
		inbox := w.line.inbox.(*openInbox)
		w.line.cache = &Cache{cfg: Config{For: time.Second}}
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
	l := &Line{handle: "writer", inbox: &openInbox{}}
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
// also if it comes before the reply to the call. Readers that are too many to be listed are waited out.
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
		many := w.Begin()
		d := listed("a")
		d.Rest = 2 * time.Second
		w.Replied(many, "k", time.Now(), d)
		w.acknowledged("a", many.Ack.Number)
		redistest.Expect(t, await(t, w, many), 2*time.Second, "it took %v; want 2 s")
		redistest.Expect(t, len(w.calls), 0, "%d calls are left")
	})
}

// The readers of a call that told them nothing are told by another one. A call that found none
// leaves nothing to wait for.
func TestWriterHasReadersTold(t *testing.T) {
	t.Parallel()
	w := newTestWriter()
	got := w.Replied(nil, "k", time.Now(), listed("a"))
	redistest.Check(t, got != nil && got.tell, "a call without a number is %+v", got)
	told := w.Begin()
	got = w.Replied(told, "k", time.Now(), listed("a"))
	redistest.Check(t, got == told && !told.tell, "a call with a number is %+v", got)
	w.End(told)
	got = w.Replied(w.Begin(), "k", time.Now(), loads.Dropped{})
	redistest.Check(t, got == nil && len(w.calls) == 1, "a call that found nobody is %+v, with %d calls", got, len(w.calls))
}
