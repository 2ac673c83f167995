package singleflight

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// A process loads without Redis, invalidates while it can be asked, and is cut off
// again: a caller that comes then without Redis must not be given the load from before.
func TestFaultLocalLoadIsNotSharedAfterItsOwnInvalidate(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		s, p, g, _ := twoGroups(t, target)
		load, began, gate := oldThenNew()
		closeInsteadOf(p, "load enter")
		first := startFetch(t.Context(), g, s.Key, load)
		harness.Got(t, 20*time.Second, "the load without Redis", began)
		if err := g.Invalidate(t.Context(), s.Key); err != nil {
			t.Fatal(err)
		}
		p.Refuse(true)
		p.CloseAll() // so that it doesn't take a while
		second := startFetch(t.Context(), g, s.Key, load)
		wantValue(t, "the caller after the Invalidate", "new", second)
		close(gate)
		wantValue(t, "the loading caller", "old", first)
		p.Refuse(false)
		p.SetHook(nil)
	})
}
