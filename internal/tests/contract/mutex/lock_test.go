package mutex

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Do and TryDo run fn under the lock with its token, return what fn did, and join the loss to it. TryDo does not wait.
func TestMutexDo(t *testing.T) {
	some(t, func(f *fixture) {
		for _, turns := range []time.Duration{0, 20 * time.Millisecond} {
			m, wire := f.open(ttl(time.Second), localFor(turns))
			work, last := errors.New("work failed"), uint64(0)
			never := func(context.Context, uint64) error { f.Error("it ran"); return nil }
			for op, do := range map[string]func(context.Context, string, func(context.Context, uint64) error) error{"do": m.Do, "try do": m.TryDo} {
				for _, want := range []error{nil, work} {
					err := do(f.Context(), "k", func(ctx context.Context, token uint64) error {
						f.wantHeld("k", true)
						redistest.Check(f, token > last && token == f.fence("k") && ctx.Err() == nil, "token %d after %d; ctx %v", token, last, ctx.Err())
						last = token
						redistest.WantErr(f, m.TryDo(ctx, "k", never), leasehold.ErrBusy)
						return want
					})
					redistest.CheckNow(f, errors.Is(err, want) && !errors.Is(err, leasehold.ErrLost), "%s returns %v; want %v", op, err, want)
					f.wantHeld("k", false)
				}
				redistest.WantText(f, do(f.Context(), "", never), "leasehold: mutex: "+op+" ", "key is empty")
			}
			err := m.Do(f.Context(), "k", func(ctx context.Context, _ uint64) error {
				wire.Cut()
				redistest.Get(f, "the loss", ctx.Done())
				return work
			})
			wire.Heal()
			redistest.WantErr(f, err, leasehold.ErrLost, work)
			redistest.Eventually(f, "the expiry", func() bool { return len(f.Held("k")) == 0 })
		}
	})
}

// A caller that holds the lock would wait for itself.
func TestLockedTwice(t *testing.T) {
	each(t, func(f *fixture) {
		for _, turns := range []time.Duration{0, 20 * time.Millisecond} {
			m, _ := f.open(localFor(turns))
			other, _ := f.open(localFor(turns))
			ctx, cancel := context.WithTimeout(f.Context(), 20*time.Second)
			defer cancel()
			never := func(context.Context, uint64) error { f.Error("it ran"); return nil }
			err := m.Do(ctx, "k", func(outer context.Context, _ uint64) error {
				inner := context.WithValue(outer, ctxKey{}, "v")
				redistest.WantErr(f, m.Do(inner, "k", never), leasehold.ErrInvalid, redistest.Says("descends"))
				redistest.WantErr(f, redistest.ErrorOf(m.DoOnce(inner, "k", "slot", time.Minute, never)), leasehold.ErrInvalid)
				redistest.WantErr(f, m.TryDo(inner, "k", never), leasehold.ErrBusy)
				// Through the lock of another key.
				err := m.Do(inner, "other", func(between context.Context, _ uint64) error {
					_, err := m.Lock(between, "k")
					return err
				})
				redistest.WantErr(f, err, leasehold.ErrInvalid)
				redistest.Check(f, outer.Err() == nil, "the lock is lost: %v", context.Cause(outer))
				// Another handle is another caller's.
				short, cancel := context.WithTimeout(inner, 50*time.Millisecond)
				defer cancel()
				redistest.WantErr(f, other.Do(short, "k", never), context.DeadlineExceeded)
				return nil
			})
			redistest.NoError(f, err)
			// The other handle's caller leaves the queue in the background.
			redistest.Eventually(f, "the key to be free", func() bool {
				return f.Queued("k") == 0 && f.RDB.ZCard(f.Context(), f.Part("k", "holders")).Val() == 0
			})
		}
	})
}

// A ctx may outlive the lock that it descends from.
func TestLockedAfterTheLockAbove(t *testing.T) {
	some(t, func(f *fixture) {
		m, _ := f.open()
		var above context.Context
		redistest.WantErr(f, m.Do(f.Context(), "k", func(ctx context.Context, _ uint64) error { above = ctx; return nil }))
		other, _ := f.open()
		held := f.take(other, "k")
		w := f.wait(context.WithoutCancel(above), m, "k")
		unlock(f, held)
		redistest.Get(f, "the lock", w.Done)
		redistest.CheckNow(f, w.Err == nil, "%v", w.Err)
		unlock(f, w.Value)
	})
}

type ctxKey struct{}
