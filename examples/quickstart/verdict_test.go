package main

import (
	"strings"
	"testing"
	"time"
)

// good is results and an outcome that nothing is wrong with.
func good() ([]result, staleOutcome) {
	var results []result
	for _, t := range tenants {
		results = append(results, result{tenant: t, most: t.cap, jobs: 10})
	}
	results[0].dead, results[0].taken, results[0].takeover = 1, 1, 1234*time.Millisecond
	return results, staleOutcome{tried: true, old: 7, new: 9, result: refused, value: writtenBy(2)}
}

func TestVerdict(t *testing.T) {
	if p := verdict(good()); len(p) != 0 {
		t.Fatalf("nothing is wrong, but: %q", p)
	}
	for want, spoil := range map[string]func([]result, *staleOutcome){
		"was exceeded":         func(r []result, _ *staleOutcome) { r[2].most = 2 },
		"was not tried":        func(r []result, _ *staleOutcome) { r[1].most = 3 },
		"never taken over":     func(r []result, _ *staleOutcome) { r[0].taken = 0 },
		"nothing to take over": func(r []result, _ *staleOutcome) { r[0].dead = 0 },
		"was accepted":         func(_ []result, s *staleOutcome) { s.result = accepted },
		"neither accepted":     func(_ []result, s *staleOutcome) { s.result = "redis unavailable" },
		"is not above":         func(_ []result, s *staleOutcome) { s.new = 7 },
		"guarded value":        func(_ []result, s *staleOutcome) { s.value = writtenBy(1) },
	} {
		results, stale := good()
		spoil(results, &stale)
		if p := verdict(results, stale); len(p) != 1 || !strings.Contains(p[0], want) {
			t.Errorf("got %q; want one line with %q", p, want)
		}
	}
	results, _ := good()
	if p := verdict(results, staleOutcome{}); len(p) != 0 {
		t.Errorf("where nothing can be paused: %q", p)
	}
}

func TestTable(t *testing.T) {
	results, _ := good()
	results[1].longestWait = 250 * time.Millisecond
	want := `tenant    cap  most at once  jobs done  longest wait  takeover time
acme        2             2         10        0.00 s         1.23 s
globex      4             4         10        0.25 s              –
initech     1             1         10        0.00 s              –
`
	if got := table(results); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
