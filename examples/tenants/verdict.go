package main

import "fmt"

// turns is how many turns a modest tenant may wait with fair shares: in one, as many
// requests are let in as the total allows at once.
const turns = 2

// enough is how many requests of modest tenants a phase needs for a verdict.
const enough = 20

// verdict says what is wrong with a show.
func verdict(results []*result) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for i, r := range results {
		waits, refused := r.modest()
		if len(waits)+refused < enough {
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
			if n := r.passedBy(); n[len(n)/2] < 2*turns*total {
				bad("%s: %d requests passed a modest one; the greedy ones did not fill the queue", r.name, n[len(n)/2])
			}
			continue
		}
		for _, name := range tenants {
			own := limit
			if name == "greedy-1" && r.limited > 0 {
				own = r.limited
			}
			if n := r.most(name); n > own {
				bad("%s: %s had %d requests in flight at once; its limit is %d", r.name, name, n, own)
			}
		}
		if refused > 0 {
			bad("%s: %d requests of modest tenants were refused", r.name, refused)
		}
		if n := r.passedBy(); n[len(n)*9/10] > turns*most {
			bad("%s: up to %d requests passed a modest one; two turns are %d", r.name, n[len(n)*9/10], turns*most)
		}
	}
	return problems
}
