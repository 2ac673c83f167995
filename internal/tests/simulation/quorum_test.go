package simulation

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Locks of three and five servers, by turns, of which a minority is in trouble at any time: nobody holds a
// lock beside another one, tokens rise, no lock is lost, every waiter is served, and all can be closed.
func TestQuorumSimulation(t *testing.T) {
	redistest.Seeds(t, 4, func(t *testing.T, seed uint64) {
		var w *quorumWorld
		n := 3 + 2*int(seed%2)
		stuck := bubble(t, func(t *testing.T) { w = playQuorum(t, seed, n) })
		if stuck != nil && (w == nil || w.violation == nil) {
			t.Errorf("the bubble: %v", stuck)
			return
		}
		if w.violation != nil {
			t.Errorf("%d servers: %v\n%s", n, w.violation, w.describe())
			return
		}
		t.Logf("%d servers, %d troubles, %v, longest wait %v", n, len(w.script), w.tally, w.longest)
	})
}
