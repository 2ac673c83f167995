package lease

import (
	"context"

	"github.com/leasehold-go/leasehold/internal/keys"
)

type holdKey struct{}

// Hold is the parent of the Context of something held. All contexts that descend from it tell
// what is held.
type Hold struct {
	context.Context // that of the acquiring call
	By              interface {
		// PermitsOf returns how many permits of the key of m it holds now.
		PermitsOf(m *Manager, key string) int
	}
}

// Value makes the Hold known, besides the values of the acquiring call.
func (h *Hold) Value(key any) any {
	if key == (holdKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// Above returns the lease whose Context ctx descends from, the nearest one; nil: there is none.
func Above(ctx context.Context) *Lease {
	h, _ := ctx.Value(holdKey{}).(*Hold)
	if h == nil {
		return nil
	}
	l, _ := h.By.(*Lease)
	return l
}

// HeldAbove returns how many permits of key ctx descends from. As long as the caller waits
// under ctx, they are not given back.
func (m *Manager) HeldAbove(ctx context.Context, key string) (permits int) {
	for {
		h, _ := ctx.Value(holdKey{}).(*Hold)
		if h == nil {
			return permits
		}
		permits += h.By.PermitsOf(m, key)
		ctx = h.Context
	}
}

// PermitsOf implements [Hold].
func (l *Lease) PermitsOf(m *Manager, key string) int {
	if l.a.m != m || l.a.Key != key {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.a.state != held {
		return 0
	}
	return l.a.Permits
}

// mayWait returns an error if the caller, which is queued, would wait for itself: it needs
// permits that are given back only after it has returned.
func (c *caller) mayWait() error {
	m, at, above := c.m, c.at, 0
	if at.Turns == nil || at.Own {
		above = m.HeldAbove(c.ctx, at.Key)
	}
	if above == 0 {
		return nil
	}
	m.mu.Lock()
	state := at.seen()
	m.mu.Unlock()
	if state == nil || above+at.Permits <= state.Limit {
		return nil
	}
	return c.fail(keys.Invalid("ctx descends from a lease of this key, for which the call would wait: it asks for %d, that lease holds %d, and the limit is %d", at.Permits, above, state.Limit))
}
