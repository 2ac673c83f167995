package semaphore

import (
	"context"
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestTryDoDoesNotWait(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open(limit(1))
		err := s.TryDo(f.Context(), "k", func(ctx context.Context) error {
			f.WantHeld("k", 1)
			redistest.WantErr(f, s.TryDo(ctx, "k", func(context.Context) error { f.Error("it ran"); return nil }), leasehold.ErrBusy)
			return errWork
		})
		redistest.WantErr(f, err, errWork)
		redistest.WantNot(f, err, leasehold.ErrLost)
		f.WantHeld("k", 0)
	})
}
