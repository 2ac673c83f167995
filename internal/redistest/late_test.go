package redistest

import (
	"testing"
	"testing/synctest"
	"time"
)

// What the process was late by makes a bound longer by twice that, if it came after the bound's beginning, and none
// in a bubble.
func TestBoundsAreLongerWhereTheProcessWasLate(t *testing.T) {
	const late = time.Hour
	before := time.Now()
	lateness.mu.Lock()
	lateness.sum += late
	lateness.marks = append(lateness.marks, mark{time.Now(), lateness.sum})
	lateness.mu.Unlock()
	t.Cleanup(func() {
		lateness.mu.Lock()
		defer lateness.mu.Unlock()
		lateness.sum, lateness.marks = lateness.sum-late, nil
	})
	after := time.Now()
	AtLeast(t, Late(before), late, "it is %v late")
	Check(t, Late(after) < late, "it is still late by %v", Late(after))
	Check(t, !Over(before, 0) && Over(before.Add(-4*late), late), "a bound is not longer by twice %v", late)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		time.Sleep(2 * time.Second)
		Check(t, Late(began) == 0 && Over(began, time.Second), "it is late in a bubble by %v", Late(began))
	})
}
