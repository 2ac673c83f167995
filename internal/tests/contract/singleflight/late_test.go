package singleflight

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// What Redis answered a process with may have been invalidated before another
// caller came: a caller that joined after the answer gets it only if it holds yet. Each case
// makes the enter of a first caller be answered, and its answer be held up.
func TestCallerThatJoinsAfterTheAnswerAsksAgain(t *testing.T) {
	for what, c := range map[string]struct {
		others      loader // of a call of another process: while the enter is held up, or before it
		meanwhile   bool
		value       string
		first, late singleflight.Source // where nothing was invalidated; 0: the failure
	}{
		"a value":                  {gives("old"), true, "old", singleflight.Cached, singleflight.Cached},
		"a remembered failure":     {fails(errBoom), false, "", 0, 0},
		"the mark of large values": {gives("far too large"), false, "own", singleflight.Loaded, singleflight.Shared},
	} {
		for _, invalidated := range []bool{false, true} {
			subBubble(t, fmt.Sprint(what, ", invalidated: ", invalidated), func(f *fixture) {
				g, other, wire := f.pair(func(c *singleflight.Config[string]) { c.ErrorTTL, c.MaxValueBytes = time.Minute, 10 })
				fetch(f, f.Context(), g, "warm", gives("v")).got()
				var first *pending[string]
				if c.meanwhile {
					wire.Stall("load enter")
					first = fetch(f, f.Context(), g, "k", gives("own"))
				}
				redistest.Get(f, "the other's end", fetch(f, f.Context(), other, "k", c.others).done)
				wire.StallReplies("load enter")
				wire.Unstall()
				if !c.meanwhile {
					first = fetch(f, f.Context(), g, "k", gives("own"))
				}
				synctest.Wait()
				if invalidated {
					redistest.WantErr(f, other.Invalidate(f.Context(), "k"))
				}
				late := fetch(f, f.Context(), g, "k", gives("new"))
				redistest.CheckNow(f, !first.ended(), "the first one has its answer: %+v, %v", first.result, first.err)
				wire.Heal()
				wants := func(p *pending[string], source singleflight.Source) {
					if source == 0 {
						redistest.WantText(f, p.failed(), "boom")
					} else {
						p.want(c.value, source)
					}
				}
				wants(first, c.first)
				if invalidated {
					late.want("new", singleflight.Loaded)
				} else {
					wants(late, c.late)
				}
			})
		}
	}
}
