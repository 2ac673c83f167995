package redistest

import (
	"slices"
	"sync"
	"time"
)

// lateness is what this process knows of how much later it ran than it asked to: its control for each bound on a
// time that passes outside of a bubble. A quiet machine is not late at all.
var lateness struct {
	mu    sync.Mutex
	at    time.Time // of the last step
	sum   time.Duration
	marks []mark // of the last minutes, where it was late
}

type mark struct {
	at  time.Time
	sum time.Duration // so far
}

const (
	lateStep  = 10 * time.Millisecond
	lateUsual = 15 * time.Millisecond // what a step takes on a quiet machine, at most
)

// watchLateness goes on for as long as the process lives.
func watchLateness() {
	for ; ; time.Sleep(lateStep) {
		lateness.mu.Lock()
		now := time.Now()
		if by := now.Sub(lateness.at) - lateUsual; by > 0 && !lateness.at.IsZero() {
			lateness.sum += by
			lateness.marks = append(lateness.marks, mark{now, lateness.sum})
			if len(lateness.marks) > 20_000 {
				lateness.marks = slices.Clone(lateness.marks[10_000:])
			}
		}
		lateness.at = now
		lateness.mu.Unlock()
	}
}

// Late is by how much this process ran later than it asked to, since began, as far as Main has it watched. In a bubble
// it is never late: the clock waits for all there.
func Late(began time.Time) time.Duration {
	lateness.mu.Lock()
	defer lateness.mu.Unlock()
	if lateness.at.IsZero() || began.Year() < 2010 { // the clock of a bubble begins in 2000
		return 0
	}
	late := lateness.sum + max(0, time.Since(lateness.at)-lateUsual)
	i, _ := slices.BinarySearchFunc(lateness.marks, began, func(m mark, t time.Time) int { return m.at.Compare(t) })
	if i > 0 {
		late -= lateness.marks[i-1].sum
	}
	return late
}

// Over reports whether more than bound has passed since began. The bound is longer by twice the time that this
// process itself ran late, and the servers beside it probably too.
func Over(began time.Time, bound time.Duration) bool {
	took := time.Since(began)
	return took > bound && took > bound+2*Late(began)
}
