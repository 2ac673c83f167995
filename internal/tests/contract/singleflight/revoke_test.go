package singleflight

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A revoked load's ctx ends with the reason, another process loads at once, under the
// permit of MaxLoads that is free again, and the late result goes to its own caller and
// is not stored.
func TestRevokeOfALoad(t *testing.T) {
	each(t, func(f *fixture) {
		mod := func(c *singleflight.Config[string]) { c.MaxLoads = 1 }
		a, _ := f.open(mod)
		b, _ := f.open(mod)
		c, _ := f.open(mod, func(c *singleflight.Config[string]) { c.Schema = 77 }) // reaches every schema
		o := newOrigin(f)
		for _, operator := range []*singleflight.Group[string]{b, c} {
			first := fetch(f, f.Context(), a, "k", o.load)
			l := o.next(f)
			time.Sleep(200 * time.Millisecond) // its process has subscribed by then
			second := fetch(f, f.Context(), b, "k", o.load)
			redistest.Eventually(f, "a waiter", func() bool { return inspect(f, a, "k").Waiting == 1 })
			id := inspect(f, a, "k").LoadID
			redistest.WantErr(f, operator.Revoke(f.Context(), "k", id, "it hangs"))
			next := o.next(f) // while the first has not returned
			select {
			case <-l.ctx.Done():
			case <-time.After(5 * time.Second):
				f.Fatal("the loader was not told")
			}
			if revoked := new(leasehold.RevokedError); !errors.As(context.Cause(l.ctx), &revoked) || revoked.Reason != "it hangs" {
				f.Errorf("the cause is %v", context.Cause(l.ctx))
			}
			l.returns("late")
			if r := first.got(); r.Value != "late" || r.Source != singleflight.Loaded {
				f.Errorf("its own caller got %+v", r)
			}
			if s := inspect(f, a, "k"); s.Cached || !s.Loading {
				f.Errorf("the late result was stored, or ended the other load: %+v", s)
			}
			next.returns("new")
			if r := second.got(); r.Value != "new" {
				f.Errorf("the successor got %+v", r)
			}
			if r, _, err := a.Peek(f.Context(), "k"); err != nil || r.Value != "new" {
				f.Errorf("stored is %+v, %v", r, err)
			}
			redistest.NoError(f, operator.Revoke(f.Context(), "k", id, "again"))
			redistest.WantErr(f, operator.Revoke(f.Context(), "k", "AAAAAAAA-1", "r"), leasehold.ErrNoLease)
			redistest.WantErr(f, operator.Revoke(f.Context(), "k", id, ""), leasehold.ErrInvalid)
			redistest.WantErr(f, a.Invalidate(f.Context(), "k"))
		}
	})
}

// A load that was invalidated can be revoked, too.
func TestRevokeOfAnInvalidatedLoad(t *testing.T) {
	some(t, func(f *fixture) {
		a, _ := f.open()
		o := newOrigin(f)
		first := fetch(f, f.Context(), a, "k", o.obedient)
		l := o.next(f)
		id := inspect(f, a, "k").LoadID
		time.Sleep(200 * time.Millisecond)
		redistest.WantErr(f, a.Invalidate(f.Context(), "k"))
		redistest.WantErr(f, a.Revoke(f.Context(), "k", id, "it hangs"))
		select {
		case <-l.ctx.Done():
		case <-time.After(5 * time.Second):
			f.Fatal("the loader was not told")
		}
		redistest.WantErr(f, context.Cause(l.ctx), leasehold.ErrRevoked)
		o.next(f).returns("new") // its caller asks anew
		if r := first.got(); r.Value != "new" {
			f.Errorf("%+v", r)
		}
	})
}
