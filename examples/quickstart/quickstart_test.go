package main

import (
	"slices"
	"testing"
	"time"
)

// The figures at the end are only as good as these functions: each test has a
// history that they must find fault with.

// at makes an event of tenant acme, cap 2, at ms.
func at(ms int64, k kind, child, job int) event {
	return event{At: stamp(ms * int64(time.Millisecond)), Kind: k, Child: child, Tenant: "acme", Job: job}
}

func acme(t *testing.T, history ...event) result {
	t.Helper()
	results, err := measure(history)
	if err != nil {
		t.Fatal(err)
	}
	if results[0].name != "acme" || results[0].cap != 2 {
		t.Fatalf("the first tenant is %+v", results[0].tenant)
	}
	return results[0]
}

func TestMostAtOnce(t *testing.T) {
	two := []event{
		at(0, started, 1, 1), at(10, ended, 1, 1),
		at(5, started, 2, 1), at(20, ended, 2, 1),
	}
	for _, c := range []struct {
		what  string
		third []event
		most  int
	}{
		{"after one has ended", []event{at(11, started, 3, 1), at(15, ended, 3, 1)}, 2},
		{"inside both", []event{at(6, started, 3, 1), at(7, ended, 3, 1)}, 3},
		{"around both", []event{at(-1, started, 3, 1), at(30, ended, 3, 1)}, 3},
		{"at the very end of one", []event{at(10, started, 3, 1), at(15, ended, 3, 1)}, 3},
		{"of a worker that runs one already", []event{at(6, started, 1, 2), at(15, ended, 1, 2)}, 3},
	} {
		// By arrival the pipes may be mixed in any order.
		for _, history := range [][]event{slices.Concat(two, c.third), slices.Concat(c.third, two)} {
			if r := acme(t, history...); r.most != c.most || r.jobs != 3 {
				t.Errorf("a third job %s: %d at once, %d jobs; want %d and 3", c.what, r.most, r.jobs, c.most)
			}
		}
	}
}

func TestOtherTenantsDoNotCount(t *testing.T) {
	other := []event{at(0, started, 2, 1), at(10, ended, 2, 1)}
	for i := range other {
		other[i].Tenant = "globex"
	}
	if r := acme(t, append(other, at(0, started, 1, 1), at(10, ended, 1, 1))...); r.most != 1 || r.jobs != 1 {
		t.Errorf("%d at once, %d jobs; want 1 and 1", r.most, r.jobs)
	}
}

// dies is worker 1, killed at 10 in the middle of a job, and gone at 12.
var dies = []event{at(0, started, 1, 1), at(10, killed, 1, 0), at(12, gone, 1, 0)}

func TestAKilledWorkersJobEndsWhenItIsGone(t *testing.T) {
	others := []event{at(1, started, 2, 1), at(100, ended, 2, 1)}
	late := []event{at(13, started, 3, 1), at(20, ended, 3, 1)}
	if r := acme(t, slices.Concat(dies, others, late)...); r.most != 2 || r.jobs != 2 {
		t.Errorf("a job after it was gone: %d at once, %d jobs; want 2 and 2", r.most, r.jobs)
	}
	early := []event{at(11, started, 3, 1), at(20, ended, 3, 1)}
	if r := acme(t, slices.Concat(dies, others, early)...); r.most != 3 {
		t.Errorf("a job while it may have run: %d at once; want 3", r.most)
	}
}

func TestTakeover(t *testing.T) {
	// The other permit goes from job to job; that of the dead stays out of use.
	others := []event{
		at(1, started, 2, 1), at(50, ended, 2, 1),
		at(51, started, 3, 1), at(100, ended, 3, 1),
	}
	if r := acme(t, slices.Concat(dies, others)...); r.dead != 1 || r.taken != 0 || r.tookOver() != "never" {
		t.Errorf("without one: %+v", r)
	}
	heir := []event{at(70, started, 4, 1), at(80, ended, 4, 1)}
	if r := acme(t, slices.Concat(dies, others, heir)...); r.dead != 1 || r.taken != 1 || r.takeover != 60*time.Millisecond {
		t.Errorf("60 ms after the kill: %+v", r)
	}
	before := []event{at(2, started, 4, 1), at(3, ended, 4, 1)}
	if r := acme(t, slices.Concat(dies, others, before)...); r.taken != 0 {
		t.Errorf("the cap reached before the kill: %+v", r)
	}
	idle := []event{at(0, started, 1, 1), at(5, ended, 1, 1), at(10, killed, 1, 0), at(12, gone, 1, 0)}
	if r := acme(t, slices.Concat(idle, others)...); r.dead != 0 || r.tookOver() != "–" {
		t.Errorf("nothing held at the kill: %+v", r)
	}
}

func TestLongestWait(t *testing.T) {
	r := acme(t,
		at(0, waits, 1, 1), at(5, started, 1, 1), at(6, ended, 1, 1),
		at(6, waits, 1, 2), at(40, quits, 1, 2),
		at(0, waits, 2, 1), at(30, started, 2, 1), at(31, ended, 2, 1))
	if r.longestWait != 34*time.Millisecond {
		t.Errorf("%v; want 34ms, of the wait that the end cut off", r.longestWait)
	}
}

func TestBrokenHistoriesAreErrors(t *testing.T) {
	for what, history := range map[string][]event{
		"no end":     {at(0, started, 1, 1)},
		"no start":   {at(1, ended, 1, 1)},
		"two starts": {at(0, started, 1, 1), at(1, started, 1, 1)},
		"backwards":  {at(2, started, 1, 1), at(1, ended, 1, 1)},
	} {
		if _, err := measure(history); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
