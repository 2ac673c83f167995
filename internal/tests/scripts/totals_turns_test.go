package scripts_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/redis/go-redis/v9"

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

func (d *desk) now() int64 {
	d.Helper()
	return redistest.Must(d.rdb.Time(d.Context()).Result())(d).UnixMilli()
}

func (d *desk) turn(name string) float64 {
	d.Helper()
	return d.rdb.ZScore(d.Context(), d.part("turns"), name).Val()
}

func (d *desk) setTurn(name string, score float64) {
	d.Helper()
	redistest.WantErr(d, d.rdb.ZAdd(d.Context(), d.part("turns"), redis.Z{Member: name, Score: score}).Err())
}

// mark is the request that holds the others up.
func (d *desk) mark() string {
	d.Helper()
	all := d.marks()
	redistest.CheckNow(d, len(all) == 1, "%q have marks; want one", all)
	return all[0]
}

// older makes the mark older.
func (d *desk) older(ms float64) { m := d.mark(); d.setTurn(m, d.turn(m)-ms) }

func (d *desk) holdsKey(key string) bool {
	for _, a := range d.held {
		if a.key == key {
			return true
		}
	}
	return false
}

// A key that has held others up in vain for a second stands aside for 1, 2, 4, 8 and again 8 s.
// Its charge is forgotten 16 s later.
func TestTimesAsideDouble(t *testing.T) {
	eachDesk(t, 4, func(t *testing.T, d *desk) {
		d.enter("long", 1, 4, 1)
		d.enter("heavy", 4, 4, 1)
		for n, want := range []int64{1000, 2000, 4000, 8000, 8000, 1000} {
			redistest.CheckNow(t, !d.enter("light", 1, 4, 1), "a request passed the one that holds it up")
			d.older(1000)
			before := d.now()
			d.goOn()
			after := d.now()
			redistest.CheckNow(t, d.holdsKey("light"), "time %d: the light request still waits", n)
			d.leave(len(d.held) - 1)
			charge := d.turn(":heavy")
			until := int64(-charge / 32)
			redistest.Check(t, until >= before+want && until <= after+want, "time %d: it stands aside for %d ms; want %d", n, until-before, want)
			// The time is over, at last with all that is remembered of it.
			ended, times := d.now()-1, math.Mod(-charge, 32)
			if n == 4 {
				ended -= 16_000
			}
			d.setTurn(":heavy", -(float64(ended)*32 + times))
			d.setTurn(":", float64(d.now())*32)
			d.ask()
		}
	})
}

// Of keys that stood aside, the one whose time ended first is the next that holds others up.
func TestKeyThatStoodAsideFirstIsNext(t *testing.T) {
	eachDesk(t, 4, func(t *testing.T, d *desk) {
		d.enter("long", 1, 4, 1)
		for _, key := range []string{"a", "b", "c"} {
			d.enter(key, 4, 4, 1)
			if key == "a" { // from here on the family rests
				d.setTurn(":", -float64(d.now()+900)*32)
			}
		}
		d.goOn()
		marks, n := d.marks(), d.card("ready")
		redistest.CheckNow(t, len(marks) == 0 && n <= 0, "%q have marks and %d keys compete while the family rests", marks, n)
		now := d.now()
		for key, ago := range map[string]int64{"a": 100, "b": 200, "c": 50} {
			d.setTurn(":"+key, -float64(now-ago)*32)
		}
		d.setTurn(":", float64(now)*32)
		d.ask()
		member := d.mark()
		redistest.Check(t, member[:2] == "b:", "%s holds the others up; want b, whose time ended first", member)
	})
}

// What requests of other keys held up before counts, too: for the time of the family. Then
// nobody holds others up for a second, and a key that stands aside is served as soon as it fits.
func TestFamilyRestsForASecond(t *testing.T) {
	eachDesk(t, 4, func(t *testing.T, d *desk) {
		d.enter("long", 1, 4, 1)
		d.enter("heavy", 4, 4, 1)
		redistest.CheckNow(t, !d.enter("light", 1, 4, 1), "a request passed the one that holds it up")
		d.setTurn(":", float64(d.now()+900)*32)
		d.older(200)
		before := d.now()
		d.goOn()
		redistest.CheckNow(t, d.holdsKey("light"), "the light request still waits")
		until := int64(-d.turn(":") / 32)
		redistest.Check(t, until >= before+1000 && until <= d.now()+1000, "the family rests for %d ms; want a second", until-before)
		d.enter("other", 4, 4, 1)
		redistest.Check(t, d.enter("light", 1, 4, 1) && len(d.marks()) == 0, "%q hold others up while the family rests", d.marks())
		for len(d.held) > 0 && d.held[0].permits == 1 {
			d.leave(0)
		}
		redistest.Check(t, len(d.held) == 1, "%+v hold; want a request that stood aside, since all is free", d.held)
	})
}

// A request that fits tells that it is held up, however many requests that do not fit stand before it.
func TestRequestBehindManyIsSeen(t *testing.T) {
	eachDesk(t, 4, func(t *testing.T, d *desk) {
		d.enter("long", 1, 4, 1)
		for i := range 30 {
			d.enter(fmt.Sprintf("k%02d", i), 4, 4, 1)
		}
		score := d.turn(d.mark())
		redistest.CheckNow(t, score < harms, "the mark says that others would fit: %.0f", score)
		d.enter("z", 1, 4, 1)
		redistest.AtLeast(t, d.turn(d.mark()), harms, "the mark does not say that another would fit: %.0f")
		d.older(1000)
		for i := 0; i < 5 && len(d.waiting) > 30; i++ {
			d.goOn()
		}
		redistest.Check(t, d.holdsKey("z"), "the request that fits still waits")
	})
}
