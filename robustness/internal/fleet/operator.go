package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// operate is what an operator does: it looks at a key, and at times takes away something
// that it sees. A reason names the worker and the operation, so that it tells who did it.
func (c *client) operate() {
	time.Sleep(time.Duration(c.rng.IntN(30_000)) * time.Microsecond)
	keys := Keys()
	key := keys[c.rng.IntN(len(keys))]
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	id := c.begin(history.Event{Op: history.Inspect, Key: key})
	held, waits, err := c.shown(ctx, key)
	c.returned(id, history.Event{Shown: held}, err)
	all := slices.AppendSeq(waits, maps.Keys(held))
	if len(all) == 0 || c.rng.IntN(2) == 0 {
		return
	}
	target := all[c.rng.IntN(len(all))]
	if c.rng.IntN(3) == 0 { // it may have ended by the time
		time.Sleep(time.Duration(c.rng.IntN(20_000)) * time.Microsecond)
	}
	id = c.begin(history.Event{Op: history.Revoke, Key: key, Lease: target})
	c.returned(id, history.Event{}, c.revoke(ctx, key, target, history.Reason(c.Worker, id)))
}

// shown is what an Inspect shows: permits by the ID of their lease, and the IDs of waiters.
func (c *client) shown(ctx context.Context, key string) (held map[string]int, waits []string, err error) {
	var holders []leasehold.Holder
	var waiters []leasehold.Waiter
	switch key[0] {
	case 's', 't':
		s, e := c.permits(key).Inspect(ctx, key)
		holders, waiters, err = s.Holders, s.Waiters, e
	case 'm':
		s, e := c.mtx.Inspect(ctx, key)
		if err = e; s.Held {
			holders = append(holders, *s.Holder)
		}
		waiters = s.Waiters
	default:
		s, e := c.group.Inspect(ctx, key)
		if err = e; s.Loading {
			holders = append(holders, leasehold.Holder{ID: s.LoadID, Permits: 1, ExpiresIn: s.LeaseEndsIn})
		}
	}
	held = map[string]int{}
	for _, h := range holders {
		if h.ExpiresIn <= 0 {
			err = fmt.Errorf("%s is shown, which expires in %v", h.ID, h.ExpiresIn)
		}
		held[h.ID] += h.Permits
	}
	for _, w := range waiters {
		waits = append(waits, w.ID)
	}
	return held, waits, err
}

func (c *client) revoke(ctx context.Context, key, id, reason string) error {
	switch key[0] {
	case 's', 't':
		return c.permits(key).Revoke(ctx, key, id, reason)
	case 'm':
		return c.mtx.Revoke(ctx, key, id, reason)
	}
	return c.group.Revoke(ctx, key, id, reason)
}
