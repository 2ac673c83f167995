package lease_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Many leases live on over a connection without buffers, as the embedded server
// has here: a pipeline of all renewals is never answered, and those that were not
// answered go in short ones.
func TestManyLeasesOverAConnectionWithoutBuffers(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 30 * time.Second} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client := redistest.Bubble(t)
				m := newLocks(t, client(), ttl)
				all := make([]*lease.Lease, 100)
				for i := range all {
					all[i] = mustTake(t, m, fmt.Sprint(i))
				}
				time.Sleep(5 * ttl)
				lost := 0
				for _, l := range all {
					if l.Context().Err() != nil {
						lost++
					}
				}
				redistest.Check(t, lost <= 0, "%d of %d leases are lost", lost, len(all))
			})
		})
	}
}
