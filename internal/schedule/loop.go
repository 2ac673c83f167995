// Package schedule keeps one schedule of all that a handle has to do at some time:
// renew leases, give signs of life, give back what could not be given back at once.
// One goroutine waits for the first; what is due together goes out in one pipeline a
// server.
package schedule

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
)

const (
	maxBatch = 1000 // calls that are sent together
	// A server that hangs holds up its own calls only, and a bounded number of
	// goroutines: young pipelines without an answer are few, so that calls
	// gather in large batches; but old ones, whose connections may have died
	// silently, must not keep new ones from going out by a connection that works.
	maxYoung = 4
	young    = time.Second
	maxOpen  = 64
	// linger is how long the goroutine outlives the last entry, so that a lone
	// caller that takes and gives back does not start one each time.
	linger = 500 * time.Millisecond
)

// Task is something that a Loop does when it is due.
type Task interface {
	// Due is called on the loop's goroutine, without a lock, when the entry's time
	// has come. It must not block. It appends the calls to send, if any, and says
	// when it is due again, the zero time for never, and how much earlier than that
	// it may be called to share a round trip.
	//
	// The next time holds even while the calls are under way: it is when to try
	// again if no answer came. A Put or Remove of the entry after Due began counts
	// instead of what Due returns.
	Due(now time.Time, calls []*call.Call) (_ []*call.Call, next time.Time, slack time.Duration)
}

// Sender sends batches of calls. Done is called for each call.
type Sender interface {
	// Send sends calls in one pipeline.
	Send(ctx context.Context, calls []*call.Call)
	// SendInParts sends calls in short pipelines: their tasks sent something before
	// that was not answered.
	SendInParts(ctx context.Context, calls []*call.Call)
	// Node names the server of a Redis key, without asking it.
	Node(key string) string
}

// Loop is a schedule with a goroutine that lives while something is scheduled.
type Loop struct {
	sender Sender
	wake   chan struct{}

	mu       sync.Mutex // a leaf: nothing else is locked or called while it is held
	entries  heap
	running  bool
	closing  bool
	closed   bool                // Close came while a task was in Due: it is due again
	wakeAt   time.Time           // what the goroutine sleeps for
	idleTill time.Time           // when it ends, where nothing is scheduled
	open     map[way][]time.Time // when pipelines without an answer were sent
	active   sync.WaitGroup      // the goroutine and the pipelines
}

// New makes a Loop that sends with sender, several batches at a time.
func New(sender Sender) *Loop {
	return &Loop{sender: sender, wake: make(chan struct{}, 1), open: map[way][]time.Time{}}
}

// Put schedules task for at, or moves it there; e is the task's own entry.
func (l *Loop) Put(e *Entry, task Task, at time.Time, slack time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.task, e.at, e.slack, e.unanswered = task, at, slack, false
	e.changes++
	l.entries.put(e)
	if !l.running {
		l.running = true
		l.wakeAt = at
		l.active.Go(l.run)
		return
	}
	l.wakeBy(at)
}

// Remove takes an entry out of the schedule. Its task may be in Due at this
// moment, or a call of it under way: the task has to know that it is over.
func (l *Loop) Remove(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.changes++
	if e.index == 0 {
		return
	}
	l.entries.take(e)
	if len(l.entries) == 0 {
		l.idle(time.Now())
		l.wakeBy(l.idleTill)
	}
}

// Close makes every task due now, and the goroutine end without lingering once
// none is left; it waits for that, and until nothing is under way either. The
// caller sees to it that from now on only tasks put something.
func (l *Loop) Close() {
	l.mu.Lock()
	l.closing, l.closed = true, true
	l.idleTill = time.Time{}
	for _, e := range l.entries {
		e.at = time.Time{}
	}
	l.wakeBy(time.Time{})
	l.mu.Unlock()
	l.active.Wait()
}

// idle says until when the goroutine lives with nothing to do. Called with the lock.
func (l *Loop) idle(now time.Time) {
	if l.idleTill = now.Add(linger); l.closing {
		l.idleTill = time.Time{}
	}
}

// wakeBy sees to it that the goroutine looks again at the time at, and leaves it
// asleep where it will have looked by then. Called with the lock.
func (l *Loop) wakeBy(at time.Time) {
	if !at.Before(l.wakeAt) {
		return
	}
	l.wakeAt = at
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Loop) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		batches := l.due(now)

		l.mu.Lock()
		switch {
		case len(l.entries) > 0:
			l.wakeAt = l.entries[0].at
		case now.Before(l.idleTill) || batches != nil:
			l.wakeAt = l.idleTill
		default:
			l.running = false
			l.mu.Unlock()
			return
		}
		sleep := l.wakeAt.Sub(now)
		l.mu.Unlock()

		for to, b := range batches {
			l.dispatch(to, b)
		}
		timer.Reset(sleep)
		select {
		case <-timer.C:
		case <-l.wake:
		}
	}
}

// due calls every task whose time has come, and those that may come along, and
// collects what they want sent. Each task runs without the lock: its entry is out
// of the schedule meanwhile, and comes back unless someone changed it.
func (l *Loop) due(now time.Time) map[address]*batch {
	var batches map[address]*batch
	var calls []*call.Call
	for {
		e, task, changes := l.next(now, batches != nil)
		if e == nil {
			return batches
		}
		next, slack := time.Time{}, time.Duration(0)
		calls, next, slack = task.Due(now, calls[:0])
		resend := l.reschedule(e, changes, now, next, slack, len(calls) > 0)
		for _, c := range calls {
			if batches == nil {
				batches = map[address]*batch{}
			}
			c.Node = l.sender.Node(c.Key())
			to := address{way{c.Node, c.Confirm != nil}, resend}
			b := batches[to]
			if b == nil {
				b = new(batch)
				batches[to] = b
			}
			b.calls, b.entries = append(b.calls, c), append(b.entries, e)
		}
	}
}

// next takes the entry that is due first out of the schedule, with its task, which a
// Put may change from then on; nil where none is due:
// one that may come along counts where something is sent anyway.
func (l *Loop) next(now time.Time, sending bool) (e *Entry, task Task, changes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 {
		return nil, nil, 0
	}
	e = l.entries[0]
	if e.at.After(now) && (!sending || e.at.Add(-e.slack).After(now)) {
		return nil, nil, 0
	}
	l.entries.take(e)
	l.closed = false
	return e, e.task, e.changes
}

// reschedule puts an entry back as its task said, unless it was put or removed
// meanwhile, and reports whether what its task sent before was not answered.
func (l *Loop) reschedule(e *Entry, changes int, now, next time.Time, slack time.Duration, sent bool) (resend bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	resend = e.unanswered
	if e.changes == changes && !next.IsZero() {
		// Never at once again: a task that says so would keep the goroutine busy.
		if e.at = next; !next.After(now) || l.closed {
			e.at = now.Add(time.Millisecond)
		}
		e.slack = min(slack, e.at.Sub(now)/2)
		l.entries.put(e)
	}
	e.unanswered = sent
	if len(l.entries) == 0 {
		l.idle(now)
	}
	return resend
}

// batch is calls that go together, each with the entry that it is of.
type batch struct {
	calls   []*call.Call
	entries []*Entry
}

// way is how calls reach a server. Those that replicas confirm have pipelines of their own,
// and a number of their own: nobody else waits for replicas, and that they take their time
// does not read as a server that does not answer.
type way struct {
	node     string
	confirms bool
}

// address tells where a batch goes.
type address struct {
	way
	resend bool // no answer came when its tasks sent something last
}

// dispatch sends calls to one server, in pipelines of bounded size and number.
// What finds no room is dropped: its task is scheduled to try again.
func (l *Loop) dispatch(to address, b *batch) {
	send := l.sender.Send
	if to.resend && !to.confirms { // replicas may take longer than a task waits
		send = l.sender.SendInParts
	}
	for len(b.calls) > 0 {
		n := min(len(b.calls), maxBatch)
		calls, entries := b.calls[:n:n], b.entries[:n]
		b.calls, b.entries = b.calls[n:], b.entries[n:]
		sent := time.Now()
		if !l.reserve(to.way, sent, calls[0].Allowance()) {
			l.mu.Lock()
			for _, e := range entries {
				e.unanswered = to.resend
			}
			l.mu.Unlock()
			for _, c := range calls {
				c.Done(nil, call.ErrBacklog)
			}
			continue
		}
		l.active.Go(func() {
			defer l.answered(to.way, sent) // also where a hook of the client ends this goroutine
			send(context.Background(), calls)
		})
	}
}

// answered gives back the place of a pipeline that was sent at sent.
func (l *Loop) answered(to way, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.open[to], sent)
	if l.open[to] = slices.Delete(l.open[to], i, i+1); len(l.open[to]) == 0 {
		delete(l.open, to)
	}
}

// reserve takes a place among the pipelines to a server, in the order of their
// sending, if there is one. allowance is how much longer than another they may take.
func (l *Loop) reserve(to way, now time.Time, allowance time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := l.open[to]
	if len(open) >= maxOpen || (len(open) >= maxYoung && now.Sub(open[len(open)-maxYoung]) < young+allowance) {
		return false
	}
	l.open[to] = append(open, now)
	return true
}
