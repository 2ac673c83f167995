package mutex

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// TryLock, Inspect and Unlock fail quickly while Redis is known to be away. The lock is given
// back when Redis is back.
func TestRedisIsAway(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		m, wire := f.open()
		held := f.take(m, "held")
		wire.GoAway(func() {
			_, err := m.TryLock(f.Context(), "k")
			redistest.WantErr(f, err, leasehold.ErrUnavailable, harness.ErrRefused)
		})
		for name, call := range map[string]func() error{
			"TryLock": func() error { _, err := m.TryLock(f.Context(), "k"); return err },
			"Inspect": func() error { _, err := m.Inspect(f.Context(), "k"); return err },
			"Unlock":  held.Unlock,
		} {
			began := time.Now()
			redistest.WantErr(f, call(), leasehold.ErrUnavailable, harness.ErrRefused)
			if took := time.Since(began); took > 100*time.Millisecond {
				f.Errorf("%s took %v", name, took)
			}
		}
		wire.Heal()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		f.wantHeld("held", false)
		unlock(f, f.take(m, "k"))
	})
}
