package histories

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/check"
	"github.com/leasehold-go/leasehold/robustness/internal/fleet"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

const (
	runs     = 10
	span     = 2 * time.Second  // that a run takes at least
	longest  = 15 * time.Second // and goes on for, until each of its keys has enough operations
	patience = 20 * time.Second // with a model, for one key
)

// Processes do everything at random while faults strike, and no model and no sweep refuses what they saw.
func TestHistories(t *testing.T) {
	redistest.NeedServers(t)
	faults := redistest.Must(fleet.Named(setting("LEASEHOLD_FAULTS", "all")))(t)
	seed := redistest.Seed(t)
	var mu sync.Mutex
	var all check.Report
	done := 0
	t.Run("runs", func(t *testing.T) {
		for i := range number(t, "LEASEHOLD_RUNS", runs) {
			seed := seed + i
			fault := faults[seed%uint64(len(faults))]
			t.Run(fmt.Sprintf("%s-%d", fault.Name, seed), func(t *testing.T) {
				t.Parallel()
				r := run(t, fault, seed)
				mu.Lock()
				defer mu.Unlock()
				done++
				all.Add(r)
			})
		}
	})
	t.Logf("%d runs: %v", done, &all)
}

func run(t *testing.T, fault fleet.Fault, seed uint64) *check.Report {
	f := fleet.Start(t, fleet.Config{Seed: seed, Fault: fault, Version: version(t, seed), Operated: true})
	began := time.Now()
	for time.Since(began) < span || f.Fewest() < check.Enough && time.Since(began) < longest {
		f.Strike()
	}
	h := f.Finish()
	r := check.All(h, patience)
	t.Logf("%v; in %v", r, time.Since(began).Round(time.Millisecond))
	if len(r.Violations) > 0 || t.Failed() {
		t.Logf("again: LEASEHOLD_SEED=%d LEASEHOLD_FAULTS=%s LEASEHOLD_SERVER=%s LEASEHOLD_RUNS=1", seed, fault.Name, h.Terms.Server)
		save(t, h, r)
	}
	r.Tell(t)
	return r
}

func version(t *testing.T, seed uint64) redistest.Version {
	all := redistest.NeedServers(t)
	name, given := os.LookupEnv("LEASEHOLD_SERVER")
	if name == "any" {
		return all[seed%uint64(len(all))]
	}
	if !given {
		name = "redis-8.0"
	}
	for _, v := range all {
		if strings.HasPrefix(v.Name, name) {
			return v
		}
	}
	redistest.CheckNow(t, !given, "no server %q is installed", name)
	return redistest.Newest(t)
}

// save keeps a history, with a drawing for each key that a model refuses.
func save(t *testing.T, h *history.History, r *check.Report) {
	t.Helper()
	dir := setting("LEASEHOLD_OUT", "")
	if dir == "" {
		dir = redistest.Must(os.MkdirTemp("", "histories-"))(t)
	}
	base := filepath.Join(dir, fmt.Sprintf("%s-%d", h.Terms.Fault, h.Terms.Seed))
	redistest.NoError(t, h.Save(base+".jsonl"))
	t.Logf("saved as %s.jsonl", base)
	for _, d := range r.Failed {
		redistest.NoError(t, d.Save(base+"-"+d.Key+".html"))
	}
}
