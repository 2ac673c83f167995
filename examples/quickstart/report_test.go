package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

// Whatever is printed fits a terminal of 80 columns, with figures as large as
// they get.
func TestLinesFitEightyColumns(t *testing.T) {
	var out strings.Builder
	scr := newScreenTo(&out)
	intro(scr, &demo.Server{Label: "an embedded miniredis at 127.0.0.1:65535"})
	b := newBoard()
	for _, r := range b.rows {
		r.jobs = 9999
		for w := 1; w <= workers; w++ {
			if w <= r.cap {
				r.running = append(r.running, w)
			} else {
				r.waiting = append(r.waiting, w)
			}
		}
	}
	scr.print("%s", titles(b))
	scr.print("%s  %s", scr.clock(), scr.oneLine(b))
	for _, line := range scr.inPlace(b) {
		scr.print("%s", line)
	}
	r := b.row("initech")
	b.killedAt[6], r.held = at(0, killed, 6, 0).At, []int{6}
	news := b.apply(event{At: at(3456, started, 5, 1).At, Kind: started, Child: 5, Tenant: "initech"})
	r.handed = []int{6}
	news = append(news, b.apply(event{At: at(9456, started, 4, 1).At, Kind: started, Child: 4, Tenant: "initech"})...)
	// A worker holds or waits for each tenant once.
	b.row("acme").waiting, b.row("globex").running, r.running, r.waiting = []int{3}, []int{3}, []int{3}, nil
	for _, line := range append(news, b.bury(3)) {
		scr.say(line)
	}
	if len(news) < 2 {
		t.Fatalf("the board says %q", news)
	}
	var results []result
	for _, c := range tenants {
		results = append(results, result{tenant: c, most: c.cap, jobs: 9999, longestWait: 99 * time.Second, dead: 1, taken: 1, takeover: 99 * time.Second})
	}
	report(scr, results, staleOutcome{tried: true, old: 1, new: 2, result: refused, value: writtenBy(2)})
	if !strings.Contains(out.String(), "No cap was exceeded") {
		t.Fatalf("the report is missing:\n%s", out.String())
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d columns; want at most 80: %s", n, line)
		}
	}
}
