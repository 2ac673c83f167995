package semaphore

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// record is what processes of tenants said.
type record struct {
	mu      sync.Mutex
	spans   []span
	waits   map[string][]time.Duration // by key
	arrived int                        // how many arrives are complete
}

// listen reads what a process says until it ends. What a killed one has said is known.
func (r *record) listen(t *testing.T, c *redistest.Child) {
	for {
		line, err := c.LineWithin(time.Minute)
		if err != nil {
			if err != io.EOF {
				t.Errorf("a process of tenants: %v", err)
			}
			return
		}
		word, rest, _ := strings.Cut(line, " ")
		r.mu.Lock()
		switch word {
		case "turn":
			var key string
			var arrived, from, to int64
			if n, _ := fmt.Sscan(rest, &key, &arrived, &from, &to); n == 4 { // a kill may cut a line
				r.spans = append(r.spans, span{key, time.Unix(0, from), time.Unix(0, to)})
				r.waits[key] = append(r.waits[key], time.Duration(from-arrived))
			}
		case "arrived":
			r.arrived++
		case "error":
			t.Error(rest)
		}
		r.mu.Unlock()
	}
}

// Two greedy tenants with a thousand waiters each fill the total, from four processes.
// Each request of a modest tenant is granted within two turns of its arrival, and no
// limit is passed.
func TestModestTenantsAreGrantedWithinTwoTurns(t *testing.T) {
	harness.OnNewest(t, func(t *testing.T, target redistest.Target) {
		const total, limit, processes, waiters, modest, requests = 10, 5, 4, 250, 8, 5
		name := redistest.Name(t)
		spec := tenantsSpec{Addr: target.Addr(), Name: name, Limit: limit, Total: total, TTL: 10 * time.Second}
		r := &record{waits: map[string][]time.Duration{}}
		var all []*redistest.Child
		var reading sync.WaitGroup
		for range processes {
			c := redistest.StartChild(t, tenantsChild, spec.String())
			all = append(all, c)
			reading.Go(func() { r.listen(t, c) })
			for _, key := range []string{"greedy", "eager"} {
				c.Send(fmt.Sprintf("crowd %s %d", key, waiters))
			}
		}
		queue := fmt.Sprintf("leasehold:sem:{%s}:queue", name)
		admin := target.Admin(t)
		harness.Until(t, 30*time.Second, func() error {
			// The others hold permits, or are between a release and their next place.
			const want = 2 * waiters * processes * 9 / 10
			if n := admin.ZCard(t.Context(), queue).Val(); n < want {
				return fmt.Errorf("%d wait; want %d", n, want)
			}
			return nil
		})
		for i := range modest {
			all[i%processes].Send(fmt.Sprintf("arrive modest%d %d", i, requests))
		}
		redistest.Eventually(t, "all modest requests", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.arrived == modest
		})
		for _, c := range all {
			c.Send("stop")
		}
		reading.Wait()

		var first, waits []time.Duration
		for i := range modest {
			w := r.waits[fmt.Sprintf("modest%d", i)]
			if len(w) != requests {
				t.Fatalf("modest%d had %d turns; want %d", i, len(w), requests)
			}
			first, waits = append(first, w[0]), append(waits, w...)
		}
		turn := 70 * time.Millisecond
		for _, s := range r.spans { // on a busy machine a hold takes longer
			turn = max(turn, s.to.Sub(s.from))
		}
		slices.Sort(waits)
		t.Logf("%d turns, the longest %v; waits of modest tenants: first %v at most, p50 %v, worst %v",
			len(r.spans), turn, slices.Max(first), waits[len(waits)/2], waits[len(waits)-1])
		if worst := waits[len(waits)-1]; worst > 2*turn {
			t.Errorf("a modest tenant waited %v; two turns are at most %v", worst, 2*turn)
		}
		sum, keys := mostSpans(r.spans)
		if sum > total {
			t.Errorf("%d permits were held at once of %d", sum, total)
		}
		for key, n := range keys {
			if n > limit {
				t.Errorf("%s held %d permits at once of %d", key, n, limit)
			}
		}
	})
}
