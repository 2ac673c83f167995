package simulation

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// shrinking finds the few steps of a schedule that break a promise: delta debugging (Zeller, Hildebrandt,
// Simplifying and Isolating Failure-Inducing Input, 2002), within a number of reruns.
type shrinking struct {
	t     *testing.T
	rule  string // the promise; another one that breaks meanwhile is another failure
	left  int    // reruns
	until time.Time
	found *violation // the latest
}

// report reports a violation with the steps that it takes.
func report(t *testing.T, seed uint64, s schedule, v *violation) {
	t.Errorf("LEASEHOLD_SEED=%d: %v", seed, v)
	sh := &shrinking{t: t, rule: v.rule, left: 400, until: time.Now().Add(3 * time.Minute), found: v}
	if n, err := strconv.Atoi(os.Getenv("LEASEHOLD_SHRINK")); err == nil {
		sh.left = n
	}
	if sh.left <= 0 {
		return
	}
	few := sh.fewest(s)
	const runs = 20
	again := 0
	for range runs {
		if o := run(t, few); o.violation != nil {
			again++
		}
	}
	t.Errorf("shrunk to %d steps, which failed in %d of %d reruns; again with LEASEHOLD_SEED=%d, or with these lines as the file LEASEHOLD_SCHEDULE:\n# %v\n%v",
		len(few), again, runs, seed, sh.found, few)
}

// fails reports whether a schedule still breaks the promise.
func (sh *shrinking) fails(s schedule) bool {
	if sh.left == 0 || time.Now().After(sh.until) {
		return false
	}
	sh.left--
	o := run(sh.t, s)
	if o.violation == nil || o.violation.rule != sh.rule {
		return false
	}
	sh.found = o.violation
	return true
}

// fewest leaves out what it can: halves of the steps, then quarters, at last single ones.
func (sh *shrinking) fewest(s schedule) schedule {
	// What came after the violation has nothing to do with it.
	before := slices.DeleteFunc(slices.Clone(s), func(st step) bool { return st.at > sh.found.at })
	if len(before) < len(s) && sh.fails(before) {
		s = before
	}
	for size := (len(s) + 1) / 2; size > 0; {
		reduced := false
		for from := 0; from < len(s); {
			rest := slices.Delete(slices.Clone(s), from, min(from+size, len(s)))
			if sh.fails(rest) {
				s, reduced = rest, true
				continue
			}
			from += size
		}
		if size > 1 || !reduced {
			size /= 2
		}
	}
	return s
}
