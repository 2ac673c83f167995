package semaphore

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

var errWork = errors.New("work failed")

// Do and TryDo run fn under a permit, return what fn did, and join the loss to it. Without a permit fn does not run.
func TestDo(t *testing.T) {
	some(t, func(f *fixture) {
		s, wire := f.open()
		never := func(context.Context) error { f.Error("fn ran"); return nil }
		parent := context.WithValue(f.Context(), ctxKey{}, "v")
		for op, do := range map[string]func(context.Context, string, func(context.Context) error) error{"do": s.Do, "try do": s.TryDo} {
			for _, want := range []error{nil, errWork} {
				var inside context.Context
				err := do(parent, "k", func(ctx context.Context) error {
					inside = ctx
					f.WantHeld("k", 1)
					redistest.Check(f, ctx.Err() == nil && ctx.Value(ctxKey{}) == "v", "fn runs under %v", ctx)
					redistest.WantErr(f, s.TryDo(ctx, "k", never), leasehold.ErrBusy)
					return want
				})
				redistest.CheckNow(f, errors.Is(err, want) && (want != nil || err == nil), "%s returns %v, want %v", op, err, want)
				redistest.WantNot(f, err, leasehold.ErrLost, leasehold.ErrReleased)
				redistest.WantErr(f, context.Cause(inside), leasehold.ErrReleased)
				f.WantHeld("k", 0)
			}
			redistest.WantText(f, do(f.Context(), "", never), "leasehold: semaphore: "+op+" ", "key is empty")
		}
		l := f.take(s, "k", 1)
		ctx, cancel := context.WithTimeout(f.Context(), 50*time.Millisecond)
		defer cancel()
		redistest.WantErr(f, s.Do(ctx, "k", never), context.DeadlineExceeded, redistest.Says("leasehold: semaphore: do "+f.Family+"/k: "))
		release(f, l)
		// Redis cannot confirm the release, but the work was done under the lease: that is no failure of it.
		err := s.Do(f.Context(), "k", func(context.Context) error { wire.Cut(); return nil })
		wire.Heal()
		redistest.WantNot(f, err, leasehold.ErrLost)
		redistest.Eventually(f, "the permit to be given back", func() bool { return len(f.Held("k")) == 0 })
		short, wire := f.open(ttl(400 * time.Millisecond))
		for _, want := range []error{nil, errWork} {
			err := short.Do(f.Context(), "short", func(ctx context.Context) error {
				wire.Cut()
				redistest.Get(f, "the loss", ctx.Done())
				return want
			})
			wire.Heal()
			redistest.WantErr(f, err, leasehold.ErrLost, redistest.Says(f.Family+"/short"))
			redistest.Check(f, errors.Is(err, want) || want == nil, "%v; want %v, too", err, want)
		}
	})
}

func TestDoReleasesOnPanicAndGoexit(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open()
		func() {
			defer func() { redistest.Expect(f, recover(), "boom", "recovered %v") }()
			_ = s.Do(f.Context(), "k", func(context.Context) error { panic("boom") })
		}()
		f.WantHeld("k", 0)
		done := make(chan bool)
		go func() {
			returned := false
			defer func() { done <- returned }()
			_ = s.Do(f.Context(), "k", func(context.Context) error {
				runtime.Goexit()
				return nil
			})
			returned = true
		}()
		redistest.CheckNow(f, !redistest.Get(f, "the end of the goroutine", done), "Do returned after Goexit")
		f.WantHeld("k", 0)
	})
}

// A caller that holds permits may take more of them, but not more than the limit in force. Of a family with a total it
// may take those of other keys, but not more than the total in force.
func TestPermitsTakenTwice(t *testing.T) {
	some(t, func(f *fixture) {
		for name, mod := range map[string]func(*semaphore.Config){"limit": localFor(0), "limit, in turns": localFor(20 * time.Millisecond), "total": total(3)} {
			s, _ := f.open(limit(3), mod)
			keys, set := []string{"k", "k"}, func(n int) error { return s.SetLimit(f.Context(), "k", n) }
			if name == "total" {
				keys, set = []string{"k", "other", "third"}, func(n int) error { return s.SetTotal(f.Context(), n) }
			}
			ctx, cancel := context.WithTimeout(f.Context(), 20*time.Second)
			defer cancel()
			err := s.DoN(ctx, keys[0], 2, func(two context.Context) error {
				return s.Do(two, keys[1], func(three context.Context) error {
					never := func(context.Context) error { f.Errorf("%s: it ran", name); return nil }
					for _, key := range keys {
						err := s.Do(three, key, never)
						redistest.WantErr(f, err, leasehold.ErrInvalid, redistest.Says("that lease holds 3, and the "+name[:5]+" is 3"))
					}
					redistest.NoError(f, set(4))
					ran := false
					err := s.Do(three, keys[len(keys)-1], func(context.Context) error { ran = true; return nil })
					redistest.Check(f, ran && err == nil, "with a %s of 4: %v", name, err)
					return set(0)
				})
			})
			redistest.NoError(f, err)
			f.WantHeld("k", 0)
		}
	})
}
