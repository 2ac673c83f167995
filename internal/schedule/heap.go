package schedule

import "time"

// An Entry is a task's place in the schedule of one Loop, whose lock guards it. The zero Entry
// is not scheduled.
type Entry struct {
	task       Task
	at         time.Time
	slack      time.Duration
	index      int  // in the heap, plus one; 0: not scheduled
	changes    int  // number of Puts and Removes so far
	unanswered bool // its task sent something that has no answer yet
}

// heap is a binary heap ordered by due time. Each entry knows its index, so that one of ten
// thousand is moved or taken out in a few steps.
type heap []*Entry

func (s heap) swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i+1, j+1
}

func (s heap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !s[i].at.Before(s[parent].at) {
			return
		}
		s.swap(i, parent)
		i = parent
	}
}

func (s heap) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(s); c++ {
			if s[c].at.Before(s[least].at) {
				least = c
			}
		}
		if least == i {
			return
		}
		s.swap(i, least)
		i = least
	}
}

// put schedules e, or moves it to its new time.
func (s *heap) put(e *Entry) {
	if e.index == 0 {
		*s = append(*s, e)
		e.index = len(*s)
	}
	i := e.index - 1
	s.up(i)
	s.down(e.index - 1)
}

// take removes e.
func (s *heap) take(e *Entry) {
	if e.index == 0 {
		return
	}
	i, last := e.index-1, len(*s)-1
	s.swap(i, last)
	(*s)[last] = nil
	*s = (*s)[:last]
	e.index = 0
	if i < last {
		s.up(i)
		s.down(i)
	}
}
