package mutex

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Do and TryDo run fn under the lock with its token, return what fn did, and join the loss to it. TryDo
// does not wait.
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
