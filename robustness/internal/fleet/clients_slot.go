package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// slotEvery is how often there is a new slot. All processes see the same clock.
const slotEvery = 200 * time.Millisecond

// SlotsKept is how long the completion of a slot is known: longer than a run of histories, and
// short beside a long soak, in which nothing may add up.
const SlotsKept = time.Minute

// useSlot runs the slot of this moment if nobody has. One run in six fails.
func (c *client) useSlot() {
	ctx, cancel := c.ctx()
	defer cancel()
	slot := fmt.Sprint(history.Now() / int64(slotEvery))
	do := c.mtx.DoOnce
	if c.rng.IntN(4) == 0 {
		do = c.mtx.TryDoOnce
	}
	key := "o0/" + slot
	id := c.begin(history.Event{Op: history.Once, Key: key})
	ran, err := do(ctx, "o0", slot, SlotsKept, func(ctx context.Context, _ uint64) (err error) {
		r := c.begin(history.Event{Op: history.Run, Key: key, For: id})
		select {
		case <-time.After(c.span()):
		case <-ctx.Done():
		}
		if c.rng.IntN(6) == 0 {
			err = errGaveUp
		}
		c.returned(r, history.Event{}, err)
		return err
	})
	c.returned(id, history.Event{Ran: ran}, err)
}
