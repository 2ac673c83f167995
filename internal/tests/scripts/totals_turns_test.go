package scripts_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func eachDesk(t *testing.T, total int, fn func(t *testing.T, d *desk)) {
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) { fn(t, newDesk(t, target, total)) })
}

// some is n, and on the embedded server, which takes 2 ms for a call, few.
func (d *desk) some(n, few int) int {
	if d.embedded {
		return few
	}
	return n
}

// Keys that always wait are granted permits in proportion to their shares, within 2 %.
func TestGrantsFollowTheShares(t *testing.T) {
	eachDesk(t, 10, func(t *testing.T, d *desk) {
		shares := map[string]int{"a": 1, "b": 2, "c": 4, "d": 1}
		for key, share := range shares {
			for range 20 {
				d.enter(key, 1, 100, share)
			}
		}
		from := len(d.granted)
		turns := d.some(2400, 480)
		for range turns {
			d.leave(d.any())
			last := d.granted[len(d.granted)-1]
			d.enter(last.key, 1, 100, last.share) // its key stays as far behind as it was
		}
		for key, n := range d.counts(from) {
			want := float64(turns) * float64(shares[key]) / 8
			off := math.Abs(float64(n)/want - 1)
			redistest.Check(t, off <= 0.02, "%s was granted %d of %d permits; its share is %.0f (%.1f %% off)", key, n, turns, want, 100*off)
		}
	})
}

// The first request of a key comes in the first round after its arrival, however much
// the keys before it have queued; and a key at its own limit holds nobody up.
func TestNewKeyIsNextWhateverTheOthersQueued(t *testing.T) {
	eachDesk(t, 10, func(t *testing.T, d *desk) {
		for range 200 {
			d.enter("greedy", 1, 5, 1)
			d.enter("eager", 1, 5, 1)
		}
		for i := range 50 {
			key := fmt.Sprintf("modest%d", i)
			redistest.CheckNow(t, !d.enter(key, 1, 5, 1), "%s was granted while all is in use", key)
			before := len(d.granted)
			for len(d.granted) < before+3 { // two other keys compete
				d.leave(d.any())
			}
			served := d.counts(before)
			redistest.CheckNow(t, served[key] == 1, "%s was not among the next grants: %v", key, served)
		}
	})
}

// A key that waits all the time is not starved by newcomers that come once each.
func TestNewcomersStarveNoKey(t *testing.T) {
	eachDesk(t, 1, func(t *testing.T, d *desk) {
		d.enter("first", 1, 1, 1)
		for range 30 {
			d.enter("stays", 1, 1, 1)
		}
		from := len(d.granted)
		for i := range 200 {
			d.enter(fmt.Sprintf("once%d", i), 1, 1, 1)
			d.leave(0)
		}
		// One newcomer a turn: each turn that the key gets leaves one newcomer more,
		// so that its share falls as 1, 1/2, 1/3, …: about the root of 2 * 200.
		redistest.AtLeast(t, d.counts(from)["stays"], 15, "the key that stays got %d of 200 turns beside a newcomer a turn")
	})
}

// A raise of the total grants at once, to thousands, in bounded calls.
func TestRaiseGrantsThousandsAtOnce(t *testing.T) {
	eachDesk(t, 1, func(t *testing.T, d *desk) {
		d.enter("first", 1, 10_000, 1)
		waiters := d.some(1500, 300)
		for i := range waiters {
			d.enter(fmt.Sprintf("tenant%d", i%30), 1, 10_000, 1)
		}
		d.ask() // all are alive for the next seconds
		d.set("", 2000)
		for d.more {
			d.live()
			d.goOn()
		}
		redistest.Check(t, len(d.waiting) == 0 && len(d.held) == waiters+1, "%d wait, %d hold", len(d.waiting), len(d.held))
	})
}

// Keys that have one request in line at a time compete anew after each grant. A key whose requests are heavy gets as
// much as the others also then: a virtual time that ran ahead of their tags would take from them and give to it.
func TestHeavyKeyGetsNoMoreThanItsShare(t *testing.T) {
	eachDesk(t, 12, func(t *testing.T, d *desk) {
		if d.embedded {
			t.Skip("it takes thousands of calls")
		}
		weights := map[string]int{"heavy": 8}
		for i := range 8 {
			weights[fmt.Sprintf("light%d", i)] = 1
		}
		for range 12 {
			d.enter("first", 1, 1000, 1)
		}
		inLine := func(key string) bool {
			for _, a := range d.waiting {
				if a.key == key {
					return true
				}
			}
			return false
		}
		from := 0
		for i := range 5000 {
			if i == 200 {
				from = len(d.granted)
			}
			for key, n := range weights {
				if !inLine(key) {
					d.enter(key, n, 1000, 1)
				}
			}
			if i%3 == 0 {
				d.enter(fmt.Sprintf("once%d", i), 1, 1000, 1)
			}
			d.leave(d.any())
		}
		got, light := d.counts(from), 0
		for key, n := range weights {
			if n == 1 {
				light += got[key]
			}
		}
		ratio := 8 * float64(got["heavy"]) / float64(light)
		redistest.Check(t, math.Abs(ratio-1) <= 0.045, "the heavy key was granted %.3f of what a light one was", ratio)
	})
}
