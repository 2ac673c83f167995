package main

import (
	"strings"
	"testing"
	"time"
)

// The verdict is only as good as the count of expiries: each of these says what
// happens at the origin, and how many loads were due.

const sec = time.Second

func newTally() *tally { return &tally{ttl: 10 * sec} }

// load is a load from one time to another that nothing else comes between.
func (t *tally) load(from, to time.Duration) (due bool) {
	r, due := t.begin(1, from)
	t.end(r, to, true)
	return due
}

func (t *tally) check(test *testing.T, expiries, loads int, surplus ...string) {
	test.Helper()
	if t.expiries != expiries || t.loads != loads {
		test.Errorf("%d expiries, %d loads; want %d and %d", t.expiries, t.loads, expiries, loads)
	}
	if len(t.surplus) != len(surplus) {
		test.Fatalf("said of loads that were not due: %q; want %q", t.surplus, surplus)
	}
	for i, want := range surplus {
		if !strings.Contains(t.surplus[i], want) {
			test.Errorf("said %q; want %q", t.surplus[i], want)
		}
	}
}

func TestOneLoadInEachExpiry(t *testing.T) {
	c := newTally()
	c.load(0, 2*sec)
	c.load(12*sec, 14*sec) // at the very time
	c.load(30*sec, 31*sec) // late, as when nobody asked
	c.check(t, 3, 3)
	if c.most != 1 || c.perExpiry() != 1 {
		t.Errorf("%d at once, %v for each", c.most, c.perExpiry())
	}
}

func TestTwoLoadsAtOnce(t *testing.T) {
	c := newTally()
	a, _ := c.begin(7, 0)
	b, due := c.begin(8, sec)
	c.end(a, 2*sec, true)
	c.end(b, 3*sec, true)
	c.check(t, 1, 2, "load 8 began while another ran")
	if due || c.most != 2 || c.perExpiry() != 2 {
		t.Errorf("due: %v, %d at once, %v for each", due, c.most, c.perExpiry())
	}
	// The last one to end is what is in the cache.
	c.load(13*sec, 14*sec)
	c.check(t, 2, 3, "while another ran")
}

// Such as by a caller who missed that the load it waited for had ended.
func TestALoadJustAfterAnother(t *testing.T) {
	c := newTally()
	c.load(0, 2*sec)
	if c.load(2*sec+time.Millisecond, 4*sec) {
		t.Error("it counts as due")
	}
	c.check(t, 1, 2, "while a value was fresh, for 9.999s more")
	if c.most != 1 {
		t.Errorf("%d at once", c.most)
	}
}

func TestAnEarlyExpiryIsOne(t *testing.T) {
	c := newTally()
	c.load(0, 2*sec)
	c.load(12*sec-tolerance(c.ttl), 13*sec)
	c.check(t, 2, 2)
	c.load(23*sec-tolerance(c.ttl)-1, 24*sec)
	c.check(t, 2, 3, "while a value was fresh")
}

func TestAFailedLoadLeavesNothingFresh(t *testing.T) {
	c := newTally()
	r, _ := c.begin(1, 0)
	c.end(r, sec, false)
	c.load(2*sec, 3*sec)
	c.check(t, 2, 2)
}

func TestAStampedeIsOneExpiry(t *testing.T) {
	c := newTally()
	var all []run
	for i := range 50 {
		r, _ := c.begin(int64(i), time.Duration(i)*time.Millisecond)
		all = append(all, r)
	}
	for i, r := range all {
		c.end(r, sec+time.Duration(i)*time.Millisecond, true)
	}
	c.check(t, 1, 50, "load 1 ", "load 2 ", "load 3 ")
	if c.most != 50 || c.running != 0 {
		t.Errorf("%d at once, %d running", c.most, c.running)
	}
}

func TestAnInvalidationMakesALoadDue(t *testing.T) {
	c := newTally()
	c.load(0, 2*sec)
	c.invalidate()
	if !c.load(3*sec, 5*sec) {
		t.Error("it is not")
	}
	c.load(6*sec, 7*sec)
	c.check(t, 2, 3, "while a value was fresh")
}

// A load that an invalidation overtook may still run beside the one that is due
// now, and what it ends with is not stored.
func TestAnOvertakenLoad(t *testing.T) {
	c := newTally()
	old, _ := c.begin(1, 0)
	c.invalidate()
	c.end(old, 2*sec, true)
	r, due := c.begin(2, 3*sec)
	c.end(r, 4*sec, true)
	if !due {
		t.Error("after its end none is due")
	}

	old, _ = c.begin(3, 14*sec)
	c.invalidate()
	r, due = c.begin(4, 15*sec)
	if !due {
		t.Error("beside it none is due")
	}
	_, due = c.begin(5, 15*sec)
	if due {
		t.Error("but two are")
	}
	c.end(old, 16*sec, true)
	c.end(r, 17*sec, true)
	c.check(t, 4, 5, "load 5 began while another ran")
	if c.most != 3 {
		t.Errorf("%d at once", c.most)
	}
}
