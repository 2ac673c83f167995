package schedule

import (
	"container/heap"
	"time"
)

// An Entry is a task's place in the schedule of one Loop, whose lock guards it. The zero Entry
// is not scheduled.
type Entry struct {
	task    Task
	at      time.Time
	slack   time.Duration
	index   int // in the heap, plus one; 0: not scheduled
	changes int // number of Puts and Removes so far
}

// entries is a heap ordered by due time. Each entry knows its index, so that one of ten
// thousand is moved or taken out in a few steps.
type entries []*Entry

func (s entries) Len() int           { return len(s) }
func (s entries) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s entries) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i+1, j+1
}

func (s *entries) Push(e any) {
	*s = append(*s, e.(*Entry))
	e.(*Entry).index = len(*s)
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
	heap.Fix(s, e.index-1)
}

// take removes e.
func (s *entries) take(e *Entry) {
	if e.index != 0 {
		heap.Remove(s, e.index-1)
	}
}
