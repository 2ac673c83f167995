package singleflight

import (
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// ordered sorts loads by when they began.
func ordered(loads []crowdLoad) []crowdLoad {
	slices.SortFunc(loads, func(a, b crowdLoad) int { return int(a.Began - b.Began) })
	return loads
}

// clockLooksLater is how much later than it is a process may take the server's clock, on a
// busy machine: a round trip, with what it takes to connect.
const clockLooksLater = 100 * time.Millisecond

// A value's TTL runs out again and again under load: each time there is one load.
//
// How it is counted: a value is published after its load has ended, so it is
// fresh at least until TTL after that end, but for what a process may take the server's
// clock for later than it is: the round trip of a question for the time. A load that
// begins before is one too many, unless it is an early refresh; one that begins after is
// the one that an expiry is due. That no two begin for the same expiry follows, since the
// second would begin long before the TTL of the first one's value is over.
func TestFaultExpiryUnderLoad(t *testing.T) {
	const ttl, load = 500 * time.Millisecond, 30 * time.Millisecond
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	crowd := newFaultCrowd(t, crowdSetup{Addr: srv.Addr(), Family: s.Family, TTL: ttl, LeaseTTL: 10 * time.Second}, 8)
	done := crowd.run(crowdTask{Key: "expires", Callers: 10, Load: load, For: harness.Soak(t, 2500*time.Millisecond)})
	if len(done.Errs) > 0 {
		t.Errorf("%d calls failed: %v", len(done.Errs), done.Errs[0])
	}
	var late time.Duration
	for i, l := range ordered(done.Loads) {
		if i == 0 {
			continue
		}
		before := done.Loads[i-1]
		over := time.Duration(l.Began-before.End)*time.Microsecond - ttl
		late = max(late, over)
		if over < -clockLooksLater {
			t.Errorf("a load began %v before the value of the load before it was over: %v, %v", -over, before, l)
		}
	}
	if int(done.Stats.Loads) != len(done.Loads) || len(done.Loads) < 3 {
		t.Errorf("%d loads, %d by Stats; want some", len(done.Loads), done.Stats.Loads)
	}
	t.Logf("%d loads, %d expiries, %d hits; the latest load began %v after its expiry", len(done.Loads), len(done.Loads)-1, done.Stats.Hits, late)
}

// With early refreshes there are as many loads more as Stats counts.
func TestFaultEarlyRefreshUnderLoad(t *testing.T) {
	const ttl, load = 500 * time.Millisecond, 30 * time.Millisecond
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	crowd := newFaultCrowd(t, crowdSetup{Addr: srv.Addr(), Family: s.Family, TTL: ttl, LeaseTTL: 10 * time.Second, Early: 1}, 8)
	done := crowd.run(crowdTask{Key: "early", Callers: 10, Load: load, For: harness.Soak(t, 2500*time.Millisecond)})
	if len(done.Errs) > 0 {
		t.Errorf("%d calls failed: %v", len(done.Errs), done.Errs[0])
	}
	// A refresh that was begun just before the expiry may call its loader just after it. A
	// load that was due may seem to begin just before it.
	var before, edge int
	for i, l := range ordered(done.Loads) {
		if i == 0 {
			continue
		}
		over := time.Duration(l.Began-done.Loads[i-1].End)*time.Microsecond - ttl
		if over < -ttl {
			t.Errorf("two loads at once: %v, %v", done.Loads[i-1], l)
		}
		switch {
		case over < -clockLooksLater:
			before++
		case over < lateSlack:
			edge++
		}
	}
	early := int(done.Stats.EarlyRefreshes)
	if early < before || early > before+edge {
		t.Errorf("%d loads began before the value was over, %d at about that time; Stats counts %d early refreshes", before, edge, early)
	}
	if early == 0 {
		t.Error("no early refresh")
	}
	t.Logf("%d loads: 1 cold, %d expiries, %d early refreshes; %d hits", len(done.Loads), len(done.Loads)-1-early, early, done.Stats.Hits)
}
