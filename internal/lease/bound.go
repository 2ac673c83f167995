package lease

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"
)

// bound lends a ctx that ends within engine.CallBound, and not before three
// quarters of that, to all who give back meanwhile: one of their own would cost
// each a timer and six allocations.
type bound struct {
	mu   sync.Mutex
	last context.Context
	end  context.CancelFunc // not called: it is nobody's alone, and ends by itself
	made time.Time
}

func (b *bound) ctx() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.last == nil || now.Sub(b.made) >= engine.CallBound/4 {
		b.made = now
		b.last, b.end = context.WithTimeout(context.Background(), engine.CallBound)
	}
	return b.last
}
