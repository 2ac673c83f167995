package singleflight

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// The loader of one key in one process asks for another key, whose loader in another
// process asks for the first: the two loads wait for each other.

// A load whose last caller in its own process leaves while its loader waits for another
// load ends, though the other process waits for it. So the cycle unwinds: the loader that
// waited for that load takes it over. Where both callers leave at the same time both loads
// end. The leases are given back, and a third process loads both keys.
func TestFaultCycleOfTwoProcessesUnwinds(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		for _, leaving := range []int{1, 2} {
			t.Run(fmt.Sprint(leaving), func(t *testing.T) {
				t.Parallel()
				unwindCycle(t, target, leaving)
			})
		}
	})
}

// unwindCycle lets some callers of a cycle leave.
func unwindCycle(t *testing.T, target redistest.Target, leaving int) {
	const leaseTTL = 2 * time.Second
	s, f, other := openCycle(t, target, leaseTTL)
	// The loads wait as long as their callers do: they outlive their leases' terms.
	time.Sleep(3 * leaseTTL / 2)
	if n := len(f.all("got")); n > 0 || s.Living("holders") != 1 || other.Living("holders") != 1 {
		t.Fatalf("%d calls have ended, %d and %d leases are held", n, s.Living("holders"), other.Living("holders"))
	}
	left := time.Now()
	for i := range leaving {
		f.members[i].fetch(childOrder{ID: i, Leave: true})
	}
	for i := range 2 {
		ev := f.said("got", i)
		isServed := ev.Value == "inner" && ev.Err == "" // before it left, or because the other one did
		if isCancelled := strings.Contains(ev.Err, "context canceled"); i < leaving && !isCancelled && !isServed || i >= leaving && !isServed {
			t.Errorf("call %d got %+v", i, ev)
		}
	}
	for _, key := range []*groupSite{s, other} {
		key.clean(leaseTTL + harness.Slack)
	}
	t.Logf("the cycle had unwound %v after %d callers left", time.Since(left), leaving)
	g := s.group(target.Client(t))
	for i, key := range []*groupSite{s, other} {
		if err := g.Invalidate(t.Context(), key.Key); err != nil { // what was loaded in place of the load that ended
			t.Fatal(err)
		}
		f.members[2].fetch(childOrder{ID: 2 + i, Key: key.Key, Value: "third"})
		if ev := f.said("got", 2+i); ev.Value != "third" || ev.Source != "loaded" || ev.Err != "" {
			t.Errorf("the third process got %+v of %s", ev, key.Key)
		}
	}
}

// One of the two processes dies. The load of the other one takes over what it waited
// for when the lease ends, and its caller gets the value.
func TestFaultCycleOfTwoProcessesEndsWithOne(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		const leaseTTL = time.Second
		s, f, other := openCycle(t, target, leaseTTL)
		killed := time.Now()
		f.members[0].Kill()
		if ev := f.said("got", 1); ev.Value != "inner" || ev.Err != "" {
			t.Errorf("the surviving process got %+v", ev)
		}
		took := time.Since(killed)
		t.Logf("served %v after the kill", took)
		if took > leaseTTL+harness.Slack {
			t.Errorf("served %v after the kill; want at most %v and %v", took, leaseTTL, harness.Slack)
		}
		s.clean(leaseTTL + harness.Slack)
		other.clean(4500*time.Millisecond + harness.Slack) // the dead waiter's place
	})
}

// openCycle starts three processes, of which the first two wait for each other's load:
// member 0 loads the first key and waits for the other one, member 1 the reverse.
func openCycle(t *testing.T, target redistest.Target, leaseTTL time.Duration) (s *groupSite, f *loadFleet, other *groupSite) {
	t.Helper()
	s, f = openFleet(t, target, leaseTTL, 3)
	other = s.on(t, s.Key+"-other")
	keys := []*groupSite{s, other}
	for i, key := range keys {
		f.members[i].fetch(childOrder{ID: i, Key: key.Key, UntilTold: true, Asks: keys[1-i].Key, Value: "inner"})
	}
	for i := range keys {
		f.said("began", i)
	}
	for i := range keys {
		f.members[i].fetch(childOrder{ID: i, Finish: true})
	}
	s.WaitQueued(1)
	other.WaitQueued(1)
	return s, f, other
}
