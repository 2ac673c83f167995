package semaphore

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

var errWork = errors.New("work failed")

func TestDoHoldsAPermitAndReturnsWhatFnDid(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open()
		for _, want := range []error{nil, errWork} {
			parent := context.WithValue(f.Context(), ctxKey{}, "v")
			var inside context.Context
			err := s.Do(parent, "k", func(ctx context.Context) error {
				inside = ctx
				f.WantHeld("k", 1)
				if ctx.Err() != nil || ctx.Value(ctxKey{}) != "v" {
					f.Errorf("fn runs under %v", ctx)
				}
				return want
			})
			redistest.CheckNow(f, errors.Is(err, want) && (want != nil || err == nil), "Do returns %v, want %v", err, want)
			redistest.WantNot(f, err, leasehold.ErrLost, leasehold.ErrReleased)
			redistest.WantErr(f, context.Cause(inside), leasehold.ErrReleased)
			f.WantHeld("k", 0)
		}
	})
}

func TestDoReleasesOnPanicAndGoexit(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open()
		func() {
			defer func() {
				redistest.Expect(f, recover(), "boom", "recovered %v")
			}()
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

func TestDoJoinsTheLoss(t *testing.T) {
	some(t, func(f *fixture) {
		s, wire := f.open(ttl(400 * time.Millisecond))
		for _, want := range []error{nil, errWork} {
			err := s.Do(f.Context(), "k", func(ctx context.Context) error {
				wire.Cut()
				redistest.Get(f, "the loss", ctx.Done())
				redistest.WantErr(f, context.Cause(ctx), leasehold.ErrLost)
				return want
			})
			wire.Heal()
			redistest.WantErr(f, err, leasehold.ErrLost)
			redistest.WantText(f, err, f.Family+"/k")
			if want != nil {
				redistest.WantErr(f, err, want)
			}
		}
	})
}

// Where Redis could not confirm the release, the work was done under the lease
// all the same: that is no failure of it.
func TestDoThatCannotReleaseReturnsWhatFnDid(t *testing.T) {
	some(t, func(f *fixture) {
		s, wire := f.open()
		err := s.Do(f.Context(), "k", func(context.Context) error {
			wire.Cut()
			return nil
		})
		wire.Heal()
		redistest.WantNot(f, err, leasehold.ErrLost)
		redistest.Eventually(f, "the permit to be given back", func() bool { return len(f.Held("k")) == 0 })
	})
}

func TestDoThatGetsNoPermitDoesNotRunFn(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open()
		l := f.take(s, "k", 1)
		ctx, cancel := context.WithTimeout(f.Context(), 50*time.Millisecond)
		defer cancel()
		never := func(context.Context) error {
			f.Error("fn ran")
			return nil
		}
		err := s.Do(ctx, "k", never)
		redistest.WantErr(f, err, context.DeadlineExceeded)
		redistest.WantText(f, err, "leasehold: semaphore: do "+f.Family+"/k: ")
		redistest.WantText(f, s.Do(f.Context(), "", never), "key is empty")
		release(f, l)
	})
}
