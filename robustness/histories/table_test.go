package histories

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/robustness/internal/check"
)

// table adds up what was seen, by fault.
type table struct {
	mu   sync.Mutex
	rows map[string]*row
}

type row struct {
	runs, histories, short, ops, bad, overlaps, accepted, refused, stale, listings, revoked int
	late, delay                                                                             time.Duration
}

func (t *table) add(fault string, r *check.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = map[string]*row{}
	}
	for _, name := range []string{fault, "total"} {
		if t.rows[name] == nil {
			t.rows[name] = &row{}
		}
		x := t.rows[name]
		x.runs++
		x.histories += r.Histories - r.Short
		x.short += r.Short
		x.ops += r.Operations
		x.bad += len(r.Violations)
		x.overlaps += r.Overlaps
		x.accepted += r.Accepted
		x.refused += r.Refused
		x.stale += r.Stale
		x.listings += r.Listings
		x.revoked += r.Revoked
		x.late, x.delay = max(x.late, r.Late), max(x.delay, r.Delay)
	}
}

// String is the table in Markdown. Histories that are too short count by
// themselves; they are checked like the others.
func (t *table) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for name := range t.rows {
		if name != "total" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString("| fault | runs | histories (+ short) | operations | violations | overlaps where exclusion is not promised | guarded writes accepted / refused | stale ones accepted | listings judged | revoked | told late at most | served after at most |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, name := range append(names, "total") {
		x := t.rows[name]
		if x == nil {
			continue
		}
		fmt.Fprintf(&b, "| %s | %d | %d + %d | %d | %d | %d | %d / %d | %d | %d | %d | %v | %v |\n", name, x.runs, x.histories, x.short, x.ops,
			x.bad, x.overlaps, x.accepted, x.refused, x.stale, x.listings, x.revoked, x.late.Round(time.Millisecond), x.delay.Round(time.Millisecond))
	}
	return b.String()
}
