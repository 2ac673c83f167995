package semaphore

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A caller that holds permits may take more of them, but not more than the limit in force.
func TestPermitsTakenTwice(t *testing.T) {
	some(t, func(f *fixture) {
		for _, turns := range []time.Duration{0, 20 * time.Millisecond} {
			s, _ := f.open(limit(3), localFor(turns))
			ctx, cancel := context.WithTimeout(f.Context(), 20*time.Second)
			defer cancel()
			never := func(context.Context) error { f.Error("it ran"); return nil }
			err := s.DoN(ctx, "k", 2, func(one context.Context) error {
				return s.Do(one, "k", func(two context.Context) error {
					err := s.Do(two, "k", never)
					redistest.WantErr(f, err, leasehold.ErrInvalid)
					redistest.WantText(f, err, "that lease holds 3, and the limit is 3")
					redistest.NoError(f, s.SetLimit(f.Context(), "k", 4))
					ran := false
					if err := s.Do(two, "k", func(context.Context) error { ran = true; return nil }); err != nil || !ran {
						f.Errorf("with a limit of 4: %v", err)
					}
					redistest.NoError(f, s.SetLimit(f.Context(), "k", 0))
					return nil
				})
			})
			redistest.NoError(f, err)
			f.WantHeld("k", 0)
		}
	})
}

// A caller that holds permits of a family may take those of other keys, but not more than the
// total in force.
func TestPermitsOfATotalTakenTwice(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open(limit(3), total(3))
		ctx, cancel := context.WithTimeout(f.Context(), 20*time.Second)
		defer cancel()
		nothing := func(context.Context) error { return nil }
		redistest.NoError(f, s.DoN(ctx, "a", 2, func(two context.Context) error {
			return s.Do(two, "b", func(three context.Context) error {
				for _, key := range []string{"a", "b", "c"} {
					err := s.Do(three, key, nothing)
					redistest.WantErr(f, err, leasehold.ErrInvalid)
					redistest.WantText(f, err, "that lease holds 3, and the total is 3")
				}
				redistest.NoError(f, s.SetTotal(f.Context(), 4))
				redistest.NoError(f, s.Do(three, "c", nothing))
				redistest.NoError(f, s.SetTotal(f.Context(), 0))
				return nil
			})
		}))
	})
}
