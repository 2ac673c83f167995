package singleflight

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Of two Invalidates of one handle, the first one's reply may come last. What was published
// between them, and is still in the client's own cache, stays refused.
func TestInvalidateRepliesOutOfOrder(t *testing.T) {
	x := newInvalidatedAt(time.Minute)
	x.raise("k", 20)
	x.raise("k", 10)
	redistest.Check(t, x.refuses("k", 15) && x.refuses("k", 20), "a value from before the later Invalidate is served")
	redistest.Check(t, !x.refuses("k", 21) && !x.refuses("other", 15), "a newer value, or that of another key, is refused")
}
