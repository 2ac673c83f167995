package histories

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/check"
	"github.com/leasehold-go/leasehold/robustness/internal/fleet"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

func TestMain(m *testing.M) {
	redistest.UseServers()
	redistest.Main(m)
}

const (
	runs     = 10
	span     = 2 * time.Second  // that a run takes at least
	longest  = 15 * time.Second // and goes on for, until each of its keys has enough operations
	patience = 20 * time.Second // with a model, for one key
)

// Processes do everything at random while faults strike, and no model and no sweep refuses what they saw.
func TestHistories(t *testing.T) {
	versions, faults := redistest.NeedServers(t), fleet.Faults()
	var mu sync.Mutex
	var all check.Report
	done := 0
	t.Run("runs", func(t *testing.T) {
		redistest.Seeds(t, runs, func(t *testing.T, seed uint64) {
			r := run(t, fleet.Config{
				Seed: seed, Fault: faults[seed%uint64(len(faults))], Version: versions[seed%uint64(len(versions))], Operated: true,
			})
			mu.Lock()
			defer mu.Unlock()
			done++
			all.Add(r)
		})
	})
	t.Logf("%d runs: %v", done, &all)
}

func run(t *testing.T, cfg fleet.Config) *check.Report {
	f := fleet.Start(t, cfg)
	began := time.Now()
	for time.Since(began) < span || f.Fewest() < check.Enough && time.Since(began) < longest {
		f.Strike()
	}
	h := f.Finish()
	r := check.All(h, patience)
	t.Logf("LEASEHOLD_SEED=%d, %s on %s: %v; in %v", cfg.Seed, cfg.Fault.Name, h.Terms.Server, r, time.Since(began).Round(time.Millisecond))
	if len(r.Violations) > 0 || t.Failed() {
		save(t, h, r)
	}
	r.Tell(t)
	return r
}

// save keeps a history, with a drawing for each key that a model refuses.
func save(t *testing.T, h *history.History, r *check.Report) {
	t.Helper()
	base := filepath.Join(redistest.Must(os.MkdirTemp("", "histories-"))(t), fmt.Sprintf("%s-%d", h.Terms.Fault, h.Terms.Seed))
	redistest.NoError(t, h.Save(base+".jsonl"))
	t.Logf("saved as %s.jsonl", base)
	for _, d := range r.Failed {
		redistest.NoError(t, d.Save(base+"-"+d.Key+".html"))
	}
}
