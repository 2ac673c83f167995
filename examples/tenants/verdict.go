package main

import (
	"fmt"
	"time"
)

// twoTurns is how long a modest tenant may wait with fair shares, and slack what a busy
// machine adds on the way there and back.
const (
	twoTurns = 2 * longest
	slack    = 150 * time.Millisecond
)

// verdict says what is wrong with a show.
func verdict(results []*result) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	var plainWait time.Duration
	for i, r := range results {
		waits, refused := r.modest()
		if len(waits)+refused < 20 {
			bad("%s: only %d requests of modest tenants were answered", r.name, len(waits)+refused)
			continue
		}
		for name, t := range r.tenants {
			if t.failed > 0 {
				bad("%s: %d requests of %s failed", r.name, t.failed, name)
			}
		}
		most := total
		if r.total > 0 {
			most = r.total
		}
		if n := r.most(tenants...); n > most {
			bad("%s: %d requests were in flight at once; the total is %d", r.name, n, most)
		}
		if i == 0 { // one plain queue
			if plainWait = percentile(waits, 50); plainWait < 2*twoTurns {
				bad("%s: modest tenants waited %v; the greedy ones did not fill the queue", r.name, plainWait)
			}
			continue
		}
		for _, name := range tenants {
			most := limit
			if name == "greedy-1" && r.limited > 0 {
				most = r.limited
			}
			if n := r.most(name); n > most {
				bad("%s: %s had %d requests in flight at once; its limit is %d", r.name, name, n, most)
			}
		}
		if refused > 0 {
			bad("%s: %d requests of modest tenants were refused", r.name, refused)
		}
		if w := percentile(waits, 90); w > twoTurns+slack {
			bad("%s: modest tenants waited up to %v; two turns are %v", r.name, w, twoTurns)
		}
	}
	return problems
}
