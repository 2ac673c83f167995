package singleflight

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// What Redis answered a process with may have been invalidated before another
// caller came: a caller that joined after the answer gets it only if it holds yet. Each case
// makes the enter of a first caller be answered, and its answer be held up.
func TestCallerThatJoinsAfterTheAnswerAsksAgain(t *testing.T) {
	type world struct {
		f        *fixture
		g, other *singleflight.Group[string]
		w        *harness.Wire
	}
	for what, c := range map[string]struct {
		put   func(x world) (first *pending[string])
		first func(first *pending[string])
		late  func(late *pending[string]) // where nothing was invalidated
	}{
		"a value": {
			func(x world) *pending[string] {
				x.w.Stall("load enter")
				first := fetch(x.f, x.f.Context(), x.g, "k", gives("own"))
				synctest.Wait()
				fetch(x.f, x.f.Context(), x.other, "k", gives("old")).got()
				x.w.StallReplies("load enter")
				x.w.Unstall()
				return first
			},
			func(first *pending[string]) { first.want("old", singleflight.Cached) },
			func(late *pending[string]) { late.want("old", singleflight.Cached) },
		},
		"a remembered failure": {
			func(x world) *pending[string] {
				fetch(x.f, x.f.Context(), x.other, "k", fails(errors.New("old"))).failed()
				x.w.StallReplies("load enter")
				return fetch(x.f, x.f.Context(), x.g, "k", gives("own"))
			},
			func(first *pending[string]) { redistest.WantText(first.t, first.failed(), "old") },
			func(late *pending[string]) { redistest.WantText(late.t, late.failed(), "old") },
		},
		"the mark of large values": {
			func(x world) *pending[string] {
				fetch(x.f, x.f.Context(), x.other, "k", gives("far too large")).got()
				x.w.StallReplies("load enter")
				return fetch(x.f, x.f.Context(), x.g, "k", gives("own"))
			},
			func(first *pending[string]) { first.want("own", singleflight.Loaded) },
			func(late *pending[string]) { late.want("own", singleflight.Shared) },
		},
	} {
		for _, invalidated := range []bool{false, true} {
			name := what
			if invalidated {
				name += ", invalidated"
			}
			subBubble(t, name, func(f *fixture) {
				mod := func(c *singleflight.Config[string]) { c.ErrorTTL, c.MaxValueBytes = time.Minute, 10 }
				g, other, wire := f.pair(mod)
				fetch(f, f.Context(), g, "warm", gives("v")).got()
				first := c.put(world{f, g, other, wire})
				synctest.Wait()
				if invalidated {
					redistest.WantErr(f, other.Invalidate(f.Context(), "k"))
				}
				late := fetch(f, f.Context(), g, "k", gives("new"))
				synctest.Wait()
				redistest.CheckNow(f, !first.ended(), "the first one has its answer: %+v, %v", first.result, first.err)
				wire.Heal()
				c.first(first)
				if invalidated {
					late.want("new", singleflight.Loaded)
				} else {
					c.late(late)
				}
			})
		}
	}
}
