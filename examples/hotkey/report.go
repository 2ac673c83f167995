package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

func intro(out io.Writer, s *session) {
	fmt.Fprintf(out, "hotkey: %d server processes with %d clients each,\non %s\n", s.set.processes, s.set.clients, s.srv.Label)
	fmt.Fprintf(out, "All ask for one value, which is fresh for %v. The origin takes %v\n", s.set.ttl, s.set.load)
	fmt.Fprintf(out, "to make it, and longer if several loads run at once. Three phases of %v:\n\n", s.set.phase)
}

func report(out io.Writer, set settings, results []result, problems []string) {
	fmt.Fprintln(out, table(results))
	fmt.Fprintf(out, "The first expiry of a phase is its cold cache. stale: served for up to %v\n", set.stale)
	fmt.Fprintf(out, "after the TTL, during a rebuild. waits: for the load of another request.\n")
	fmt.Fprintf(out, "p99: time in which 99%% are answered.\n")
	if len(problems) == 0 { // else they are said on stderr
		fmt.Fprintf(out, "With protection there was exactly one load in each expiry.\n")
	}
}

// table is the figures at the end.
func table(results []result) string {
	var w strings.Builder
	const line = "%-17s  %8v %8v  %5v %6v  %7v %5v %5v  %7v\n"
	fmt.Fprintln(&w, strings.TrimRight(fmt.Sprintf(line, "", "", "", "", "per", "most", "", "", ""), " \n"))
	fmt.Fprintf(&w, line, "phase", "requests", "expiries", "loads", "expiry", "at once", "stale", "waits", "p99")
	for _, r := range results {
		fmt.Fprintf(&w, line, r.mode.name(), r.all.answers(), r.expiries, r.loads, fmt.Sprintf("%.1f", perExpiry(r.loads, r.expiries)), r.most,
			r.all.Stale, r.all.Waits, ms(r.p99))
	}
	return w.String()
}

func ms(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
}
