package gocronlock

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// A ctx that panics as it ends may end the wait of its tick, but no process. Through a scheduler no such ctx comes
// here today, because gocron derives one of its own from it.
func TestCtxThatEndsBadly(t *testing.T) {
	m := captest.Mutex(t, redistest.MiniClient(t), mutex.Config{Name: redistest.Name(t)})
	held := redistest.Must(m.Lock(t.Context(), "job"))(t)
	ctx := harness.EndedBadly{Context: t.Context(), Ended: make(chan struct{}), How: func() error { panic("Err") }}
	ended := make(chan error, 1)
	go func() {
		ended <- waitAndDo(ctx, m, "job", "the only tick", Config{Keep: time.Hour, Wait: time.Minute}, func(context.Context, uint64) error {
			t.Error("the job ran")
			return nil
		})
	}()
	redistest.Eventually(t, "the tick waits", func() bool {
		s, err := m.Inspect(t.Context(), "job")
		return err == nil && s.Waiting == 1
	})
	close(ctx.Ended)
	redistest.WantErr(t, redistest.Get(t, "the end of the wait", ended), context.Canceled)
	redistest.NoError(t, held.Unlock())
	redistest.Eventually(t, "nobody holds the lock or waits for it", func() bool { // the handle gives the place of the ended wait back in the background
		s, err := m.Inspect(t.Context(), "job")
		return err == nil && !s.Held && s.Waiting == 0
	})
}
