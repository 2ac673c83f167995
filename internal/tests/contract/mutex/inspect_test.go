package mutex

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// Inspect shows the holder with its ID, label and time, the last token, and the
// waiters; of a key that nobody holds it shows the token alone.
func TestInspect(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open(func(c *mutex.Config) { c.Label = "here" })
		state, err := m.Inspect(f.Context(), "k")
		redistest.CheckNow(f, err == nil && !state.Held && state.Holder == nil && state.LastToken == 0 && state.Waiting == 0,
			"%+v, %v", state, err)
		l, err := m.TryLock(f.Context(), "k")
		redistest.WantErr(f, err)
		state, err = m.Inspect(f.Context(), "k")
		redistest.CheckNow(f, err == nil && state.Held && state.LastToken == l.Token(), "%+v, %v", state, err)
		h := state.Holder
		if h.ID != l.ID() || h.Label != "here" || h.Permits != 1 || h.Since.UnixMicro() != int64(l.Token()) || h.ExpiresIn <= 0 || h.ExpiresIn > 30*time.Second {
			f.Fatalf("%+v", h)
		}
		redistest.WantErr(f, l.Unlock())
		state, err = m.Inspect(f.Context(), "k")
		redistest.CheckNow(f, err == nil && !state.Held && state.Holder == nil && state.LastToken == l.Token(), "%+v, %v", state, err)
	})
}
