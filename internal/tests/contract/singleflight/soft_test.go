package singleflight

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold/singleflight"
)

// At SoftTimeout a DoMany serves the stale values that it has, and waits
// on only for the keys of which it has none.
func TestSoftTimeoutOfDoMany(t *testing.T) {
	for what, mod := range map[string]config{"StaleFor": staleFor, "StaleIfError": staleIfError} {
		subBubble(t, what, func(f *fixture, _ *miniredis.Miniredis) {
			g, _ := f.open(mod, func(c *singleflight.Config[string]) { c.SoftTimeout = time.Second })
			f.stalled(g, "stale")
			b := newBatches()
			b.gate = make(chan struct{})
			all := doMany(f, f.Context(), g, []string{"first", "stale", "last"}, b)
			<-b.began
			time.Sleep(5 * time.Second)
			close(b.gate)
			if err := all.got("first", "FIRST", "stale", "old", "last", "LAST"); err != nil {
				f.Error(err)
			}
		})
	}
}
