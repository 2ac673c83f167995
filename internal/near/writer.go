package near

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/loads"
)

const (
	// tellAgain is when readers that did not acknowledge are told again for the first time. The
	// pause then doubles, up to tellAgainMost.
	tellAgain     = 50 * time.Millisecond
	tellAgainMost = 500 * time.Millisecond
	// askFirst is the least time until a writer that does not listen yet asks which readers are
	// left. Until tellAgain, the pause grows by half: it decides how late an answer comes.
	askFirst = 100 * time.Microsecond
	// asksAtOnce bounds the calls under way that ask for the readers of one call.
	asksAtOnce = 8
	// listensOn is the longest time for which a writer goes on listening after it has waited.
	listensOn = 5 * time.Second
)

// A Writer is the side of a handle that invalidates: it waits until no reader can serve an old
// copy any more.
type Writer struct {
	line *Line

	mu    sync.Mutex // guards the fields below, and those of Told and waiting that say so
	last  uint64     // the number of the last call
	calls map[string]*Told
}

func newWriter(l *Line) *Writer {
	return &Writer{line: l, last: rand.Uint64() >> 1, calls: map[string]*Told{}}
}

// Told is one call of a script that drops a value, and the readers that have to drop their
// copies because of it. Each call has its own number: an acknowledgement of an earlier try says
// nothing about this one.
type Told struct {
	Ack loads.Acknowledge

	near string
	sent time.Time
	took time.Duration // until the reply came

	// Guarded by the lock of the writer.
	acked   map[string]bool      // readers that acknowledged before the reply came
	replied bool                 // the reply has come
	readers map[string]time.Time // the readers to wait for, and until when
	rest    time.Time            // until when to wait for readers that are not listed
	asks    int                  // calls under way that ask for the readers
	tell    bool                 // the readers are to be told again
	of      *waiting             // nil: nobody waits yet
}

// waiting is one Await.
type waiting struct {
	changed chan struct{} // has room for one signal
	left    int           // calls with readers to wait for; guarded by the lock of the writer
}

func (g *waiting) signal() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

func (w *Writer) Begin() *Told {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	t := &Told{Ack: loads.Acknowledge{Number: strconv.FormatUint(w.last, 36), Handle: w.line.handle}}
	w.calls[t.Ack.Number] = t
	return t
}

// End forgets a call, which may be nil. Begin must be followed by it.
func (w *Writer) End(t *Told) {
	if t == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.calls, t.Ack.Number)
}

// Replied notes the readers that the reply to a call lists. near is the Redis key of their
// registrations, and sent is when the call was sent. t is nil if the call told them nothing. It
// returns what to wait for, or nil if there is nothing.
func (w *Writer) Replied(t *Told, near string, sent time.Time, d loads.Dropped) *Told {
	if len(d.Readers) == 0 && d.Rest == 0 {
		w.End(t)
		return nil
	}
	untold := t == nil
	if untold {
		t = w.Begin()
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	t.near, t.sent, t.took, t.replied, t.tell = near, sent, now.Sub(sent), true, untold
	t.readers = make(map[string]time.Time, len(d.Readers))
	for _, r := range d.Readers {
		if !t.acked[r.Handle] {
			t.readers[r.Handle] = now.Add(r.Lasts)
		}
	}
	if t.acked = nil; d.Rest > 0 {
		t.rest = now.Add(d.Rest)
	}
	return t
}

// acknowledged notes that a reader dropped its copy because of the call with a number.
func (w *Writer) acknowledged(reader, number string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.calls[number]
	if t == nil {
		return
	}
	if !t.replied { // its own reply may come later
		if t.acked == nil {
			t.acked = map[string]bool{}
		}
		t.acked[reader] = true
		return
	}
	w.heard(t, reader)
}

// heard removes a reader that has dropped its copy. Called with the lock.
func (w *Writer) heard(t *Told, reader string) {
	if _, waits := t.readers[reader]; !waits {
		return
	}
	if delete(t.readers, reader); len(t.readers) > 0 || t.of == nil {
		return
	}
	if t.of.left--; t.of.left == 0 { // an Await of many calls wakes once
		t.of.signal()
	}
}

// onSubscribed is told that messages are heard from now on. Acknowledgements may have been
// missed before, so the readers are told again.
func (w *Writer) onSubscribed(watched string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.calls {
		if t.of != nil && len(t.readers) > 0 && (watched == "" || watched == t.near) {
			t.tell = true
			t.of.signal()
		}
	}
}

// Await waits until no reader of the calls in all can serve an old copy any more: each has
// acknowledged, is no longer registered, or its read lease is over. It returns false if stop or
// closing was closed before.
//
// It need not have listened when the calls were made. It listens from now on, and has the
// readers told again once it does. To connect may take longer than the readers take, so it
// meanwhile asks which readers are still registered, for the first time when they may be done.
func (w *Writer) Await(all []*Told, stop, closing <-chan struct{}) bool {
	g := &waiting{changed: make(chan struct{}, 1)}
	open := w.begin(g, all)
	pause := tellAgain
	loud := time.Now().Add(tellAgain) // from when on readers are told, and not only asked for
	defer w.unwatchLater(open)
	for _, t := range open {
		since := w.line.inbox.Watch(t.near)
		if since.IsZero() {
			pause = max(askFirst, t.took/4)
		} else if since.After(t.sent) {
			w.mu.Lock()
			t.tell = true
			w.mu.Unlock()
		}
	}
	again := time.NewTimer(pause)
	defer again.Stop()
	due := false
	for {
		var tell []*Told
		var next time.Time
		open, tell, next = w.left(g, open, due, time.Now().Before(loud))
		if len(open) == 0 {
			return true
		}
		w.tell(tell)
		due = false
		select {
		case <-g.changed:
		case <-time.After(time.Until(next)):
		case <-again.C:
			if due = true; pause < tellAgain {
				pause += pause / 4
			} else {
				pause = min(2*pause, tellAgainMost)
			}
			again.Reset(pause)
		case <-stop:
			return false
		case <-closing:
			return false
		}
	}
}

// unwatchLater ends the watches of calls. What is read so much that it has copies, and changes,
// often changes again soon, and to connect takes longer than the readers take.
func (w *Writer) unwatchLater(all []*Told) {
	later := time.Duration(0)
	if c := w.line.cache; c != nil {
		later = min(c.cfg.For/2, listensOn)
	}
	watched := make([]string, len(all))
	for i, t := range all {
		watched[i] = t.near
	}
	time.AfterFunc(later, func() {
		for _, near := range watched {
			w.line.inbox.Unwatch(near)
		}
	})
}

// begin makes g the one that waits for calls.
func (w *Writer) begin(g *waiting, all []*Told) (open []*Told) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range all {
		if len(t.readers) > 0 || !t.rest.IsZero() {
			t.of = g
			open = append(open, t)
		}
	}
	return open
}

// left returns the calls that still have readers, those of them whose readers are to be told
// again or asked for, and when the next read lease is over. due says that this concerns all;
// if quiet, they are only asked for.
func (w *Writer) left(g *waiting, all []*Told, due, quiet bool) (open, tell []*Told, next time.Time) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	g.left = 0
	for _, t := range all {
		for reader, until := range t.readers {
			if !now.Before(until) {
				delete(t.readers, reader)
			} else if next.IsZero() || until.Before(next) {
				next = until
			}
		}
		if rest := t.rest; now.Before(rest) {
			if next.IsZero() || rest.Before(next) {
				next = rest
			}
		} else if len(t.readers) == 0 {
			continue
		}
		open = append(open, t)
		if len(t.readers) > 0 {
			g.left++
		}
		t.tell = t.tell || due && !quiet
		if (t.tell || due) && t.asks < asksAtOnce && len(t.readers) > 0 {
			t.asks++
			tell = append(tell, t)
		}
	}
	return open, tell, next
}

// tell has the readers of calls told once more, or asks which are left. It does not wait: the
// leases may be over before the server answers.
func (w *Writer) tell(all []*Told) {
	var calls []*call.Call
	w.mu.Lock()
	for _, t := range all {
		var readers []string
		for r := range t.readers {
			readers = append(readers, r)
		}
		if len(readers) == 0 {
			t.asks--
			continue
		}
		var ack loads.Acknowledge // none: only ask
		if t.tell {
			t.tell, ack = false, t.Ack
		}
		one := loads.NearTell(t.near, ack, readers)
		one.Done = func(v []int64, err error) { w.onTold(t, readers, v, err) }
		calls = append(calls, one)
	}
	w.mu.Unlock()
	if len(calls) > 0 {
		w.line.client.Start(context.Background(), nil, calls...)
	}
}

// onTold handles the reply to a tell. A reader that is not registered any more has dropped its
// copy, also if its acknowledgement was lost.
func (w *Writer) onTold(t *Told, readers []string, v []int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.asks--
	if err != nil {
		return
	}
	registered, err := loads.ReadNearTell(v, readers)
	if err != nil {
		return
	}
	for i, r := range readers {
		if !registered[i] {
			w.heard(t, r)
		}
	}
	if t.tell && t.of != nil {
		t.of.signal()
	}
}
