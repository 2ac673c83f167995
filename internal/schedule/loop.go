// Package schedule keeps one schedule of everything that a handle has to do at some time:
// renew leases, give signs of life, and repeat leaves that were not answered. One timer
// runs for the earliest entry. Calls that are due together are queued together, so that they
// share a round trip per server.
package schedule

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
)

// A Task is something that a Loop does when it is due.
type Task interface {
	// Due is called without a lock when the entry's time has come, for one task at a time.
	// It must not block. It appends the calls to send, if any. It returns the time when it is
	// due again (the zero time for never), and how much earlier it may be called in order to
	// share a round trip.
	//
	// The next time holds even while the calls are under way: it is the time of the next try
	// if no answer comes. If the entry is Put or Removed after Due began, that takes
	// precedence over the result of Due.
	Due(now time.Time, calls []*call.Call) (_ []*call.Call, next time.Time, slack time.Duration)
}

// A Sender sends calls.
type Sender interface {
	// Start sends calls and does not wait. It calls Done for each call, also for one that is
	// not sent, and counts the calls in active until then.
	Start(ctx context.Context, active *sync.WaitGroup, calls ...*call.Call)
}

// A Loop is a schedule. It has a goroutine only while tasks are due.
type Loop struct {
	sender Sender
	born   time.Time

	mu      sync.Mutex // a leaf: while it is held, nothing else is locked or called
	entries entries
	timer   *time.Timer   // calls run
	set     bool          // run looks at the schedule soon, or by wakeAt
	wakeAt  time.Duration // since the birth of the Loop
	// closedDuringDue says that Close came after the last entry was taken out of the schedule.
	// If the entry's task is still in Due, it is due again at once.
	closedDuringDue bool

	active sync.WaitGroup // counts the timer while it is set, and the calls without an outcome
}

// New makes a Loop that sends with sender.
func New(sender Sender) *Loop {
	l := &Loop{sender: sender, born: time.Now()}
	l.timer = time.AfterFunc(time.Hour, l.run)
	l.timer.Stop()
	return l
}

// Put schedules task for the time at, or moves it there. e is the task's own entry.
func (l *Loop) Put(e *Entry, task Task, at time.Time, slack time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.task, e.at, e.slack = task, at.Sub(l.born), slack
	e.changes++
	l.entries.put(e)
	l.wakeBy(e.at)
}

// Remove takes an entry out of the schedule. Its task may be in Due at this moment, or one of
// its calls may be under way, so the task itself must know that it is over. The timer stays set,
// so that a lone caller that takes and gives back leases does not set it each time.
func (l *Loop) Remove(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.changes++
	l.entries.take(e)
}

// Close makes every task due now, and waits until none is left, and for all calls under way.
// Close is called once. From now on only tasks may call Put; the caller must ensure both.
func (l *Loop) Close() {
	l.mu.Lock()
	l.closedDuringDue = true
	for _, e := range l.entries {
		e.at = 0
	}
	l.wakeBy(0)
	l.mu.Unlock()
	l.active.Wait()
}

// wakeBy makes sure that run looks at the schedule at the time at. Called with the lock.
func (l *Loop) wakeBy(at time.Duration) {
	if !l.set {
		l.set = true
		l.active.Add(1)
	} else if at >= l.wakeAt || !l.timer.Stop() {
		return // run looks at it by then anyway, or does so now
	}
	l.wakeAt = at
	l.timer.Reset(at - time.Since(l.born))
}

// run is what the timer calls. It sets the timer anew at its end, and nobody else does so
// meanwhile (see wakeBy), so there is one run at a time.
func (l *Loop) run() {
	if calls := l.due(time.Now()); len(calls) > 0 {
		l.sender.Start(context.Background(), &l.active, calls...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set = len(l.entries) > 0; !l.set {
		l.active.Done()
		return
	}
	l.wakeAt = l.entries[0].at
	l.timer.Reset(l.wakeAt - time.Since(l.born))
}

// due calls every task whose time has come, and every task that may share the round trip, and
// collects their calls. Each task runs without the lock. Meanwhile its entry is out of the
// schedule; it is put back unless somebody changed it.
func (l *Loop) due(now time.Time) (calls []*call.Call) {
	for {
		e, task, changes := l.next(now, len(calls) > 0)
		if e == nil {
			return calls
		}
		var next time.Time
		var slack time.Duration
		calls, next, slack = task.Due(now, calls)
		l.reschedule(e, changes, now, next, slack)
	}
}

// next takes the entry that is due first out of the schedule. It also returns the entry's
// task, because a Put may change that from then on. It returns nil if no entry is due. If
// something is sent anyway, an entry within its slack counts as due.
func (l *Loop) next(now time.Time, sending bool) (e *Entry, task Task, changes uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 {
		return nil, nil, 0
	}
	e = l.entries[0]
	if left := e.at - now.Sub(l.born); left > 0 && (!sending || left > e.slack) {
		return nil, nil, 0
	}
	l.entries.take(e)
	l.closedDuringDue = false
	return e, e.task, e.changes
}

// reschedule puts an entry back as its task asked, unless it was put or removed in the
// meantime.
func (l *Loop) reschedule(e *Entry, changes uint32, now, next time.Time, slack time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.changes == changes && !next.IsZero() {
		// Never at once: a task that returns such a time would keep the goroutine busy.
		if !next.After(now) || l.closedDuringDue {
			next = now.Add(time.Millisecond)
		}
		e.at, e.slack = next.Sub(l.born), min(slack, next.Sub(now)/2)
		l.entries.put(e)
	}
}

// An Entry is a task's place in the schedule of one Loop, whose lock guards it. The zero Entry
// is not scheduled.
type Entry struct {
	task    Task
	at      time.Duration // since the birth of the Loop
	slack   time.Duration
	index   int32  // in the heap, plus one; 0: not scheduled
	changes uint32 // number of Puts and Removes so far
}

// entries is a heap ordered by due time. Each entry knows its index, so that one of ten
// thousand is moved or taken out in a few steps.
type entries []*Entry

func (s entries) Len() int           { return len(s) }
func (s entries) Less(i, j int) bool { return s[i].at < s[j].at }
func (s entries) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = int32(i+1), int32(j+1)
}

func (s *entries) Push(e any) {
	*s = append(*s, e.(*Entry))
	e.(*Entry).index = int32(len(*s))
}

func (s *entries) Pop() any {
	last := len(*s) - 1
	e := (*s)[last]
	(*s)[last], *s = nil, (*s)[:last]
	e.index = 0
	return e
}

// put schedules e, or moves it to its new time.
func (s *entries) put(e *Entry) {
	if e.index == 0 {
		heap.Push(s, e)
		return
	}
	heap.Fix(s, int(e.index-1))
}

// take removes e.
func (s *entries) take(e *Entry) {
	if e.index != 0 {
		heap.Remove(s, int(e.index-1))
	}
}
