package singleflight

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// Many callers in many processes meet a cold key at once: one of them loads, all
// get its value.
func TestFaultColdKey(t *testing.T) {
	const processes, callers = 8, 200
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	crowd := newFaultCrowd(t, crowdSetup{Addr: srv.Addr(), Family: s.Family, TTL: time.Minute, LeaseTTL: 10 * time.Second}, processes)
	var delays []time.Duration
	rounds := harness.Rounds(t, 5)
	for round := range rounds {
		done := crowd.run(crowdTask{Key: fmt.Sprint("cold", round), Callers: callers, Load: 100 * time.Millisecond})
		if len(done.Loads) != 1 {
			t.Fatalf("round %d: %d loads; want 1: %v", round, len(done.Loads), done.Loads)
		}
		if len(done.Calls) != processes*callers {
			t.Fatalf("round %d: %d calls returned; want %d", round, len(done.Calls), processes*callers)
		}
		load := done.Loads[0]
		for _, c := range done.Calls {
			if c.Err != "" || c.Value != load.ID {
				t.Fatalf("round %d: a caller got %q, %q; want %q", round, c.Value, c.Err, load.ID)
			}
			delays = append(delays, time.Duration(c.At-load.End)*time.Microsecond)
		}
	}
	slices.Sort(delays)
	t.Logf("%d rounds of %d callers in %d processes, 1 load each; after the load returned callers had its value in %v (p50), %v (p99), %v (max)",
		rounds, processes*callers, processes, delays[len(delays)/2], delays[len(delays)*99/100], delays[len(delays)-1])
	// By asking alone, with no message, it would be a second and a half.
	if p50 := delays[len(delays)/2]; p50 > time.Second {
		t.Errorf("half of the callers had the value later than %v after the load", p50)
	}
}
