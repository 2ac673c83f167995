package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

func intro(scr *screen, srv *demo.Server) {
	scr.print("leasehold quickstart: %d worker processes", workers)
	scr.print("on %s", srv.Label)
	scr.print("Each worker wants to run a job for each of %d tenants, all the time. A tenant's", len(tenants))
	scr.print("cap holds over all workers. Numbers are workers, first in line first. 3%s was", deadMark)
	scr.print("killed: its permits stay taken until their leases of %v end, and are handed on", permitTTL)
	scr.print("when a waiter looks next, at most %v later.\n", looks)
}

func report(scr *screen, results []result, stale staleOutcome) {
	scr.print("\n%s", table(results))
	longest := time.Duration(0)
	jobs, held := 0, 0
	for _, r := range results {
		jobs += r.jobs
		held += r.dead
		longest = max(longest, r.takeover)
	}
	if len(verdict(results, stale)) > 0 {
		return // said on stderr
	}
	scr.print("No cap was exceeded in %d jobs. What the killed worker held was in use", jobs)
	scr.print("again %.2f s after the kill.", longest.Seconds())
	if stale.tried {
		scr.print("The stale holder's write was refused.")
	}
}

// table is the figures at the end.
func table(results []result) string {
	var w strings.Builder
	const line = "%-8s  %3v  %12v  %9v  %12v  %13v\n"
	fmt.Fprintf(&w, line, "tenant", "cap", "most at once", "jobs done", "longest wait", "takeover time")
	for _, r := range results {
		fmt.Fprintf(&w, line, r.name, r.cap, r.most, r.jobs, seconds(r.longestWait), r.tookOver())
	}
	return w.String()
}

func (r result) tookOver() string {
	switch {
	case r.dead == 0:
		return "–" // nothing to take over
	case r.taken < r.dead:
		return "never"
	default:
		return seconds(r.takeover)
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
