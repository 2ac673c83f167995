package mutex

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// A revoked lock goes to the next waiter with a greater token, its holder's Context ends
// with the reason, and Unlock and Extend say so. Keys that appear as a hash only are
// found, too.
func TestRevokePassesTheLockOn(t *testing.T) {
	each(t, func(f *fixture) {
		hashed := func(c *mutex.Config) { c.HashKeys = true }
		holder, _ := f.open(hashed)
		operator, _ := f.open(hashed)
		l, err := holder.Lock(f.Context(), "k")
		if err != nil {
			f.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond) // its process has subscribed by then
		next := harness.Start(f.T, func() (*mutex.Lock, error) { return operator.Lock(f.Context(), "k") })
		redistest.Eventually(f, "a waiter", func() bool {
			state, err := operator.Inspect(f.Context(), "k")
			return err == nil && state.Waiting == 1
		})
		if err := operator.Revoke(f.Context(), "k", l.ID(), "it hangs"); err != nil {
			f.Fatal(err)
		}
		got := next.Got()
		if got.Token() <= l.Token() {
			f.Errorf("token %d after %d", got.Token(), l.Token())
		}
		select {
		case <-l.Context().Done():
		case <-time.After(5 * time.Second):
			f.Fatal("the holder was not told")
		}
		if revoked := new(leasehold.RevokedError); !errors.As(context.Cause(l.Context()), &revoked) || revoked.Reason != "it hangs" {
			f.Errorf("the cause is %v", context.Cause(l.Context()))
		}
		redistest.WantErr(f, l.Extend(f.Context(), time.Minute), leasehold.ErrRevoked)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrRevoked)
		if err := operator.Revoke(f.Context(), "k", l.ID(), "it hangs"); err != nil {
			f.Error(err)
		}
		if err := got.Unlock(); err != nil {
			f.Error(err)
		}
		redistest.WantErr(f, operator.Revoke(f.Context(), "k", got.ID(), "r"), leasehold.ErrNoLease)
	})
}

// Without any message, Extend and the release of a young lock say that it was revoked.
func TestExtendSaysRevoked(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open()
		l, err := m.Lock(f.Context(), "k")
		if err != nil {
			f.Fatal(err)
		}
		if err := m.Revoke(f.Context(), "k", l.ID(), "why"); err != nil {
			f.Fatal(err)
		}
		redistest.WantErr(f, l.Extend(f.Context(), time.Minute), leasehold.ErrRevoked)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrRevoked)
	})
}
