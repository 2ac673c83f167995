package scripts_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

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
