package singleflight

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A revoked load's ctx ends with the reason, another process loads at once, under the permit of MaxLoads that is free
// again, and the late result goes to its own caller and is not stored.
func TestRevokeOfALoad(t *testing.T) {
	each(t, func(f *fixture) {
		for _, schema := range []uint32{0, 77} { // of the operator, who reaches every schema
			prefix := fmt.Sprint(f.Family, schema)
			mod := func(c *singleflight.Config[string]) { c.MaxLoads, c.Prefix = 1, prefix }
			a, b := f.two(mod)
			operator, _ := f.open(mod, func(c *singleflight.Config[string]) { c.Schema = schema })
			first, l, o := f.loading(a, "k")
			redistest.Eventually(f, "the loader's subscription", func() bool { return len(f.Subscribed(prefix)) > 0 })
			second := fetch(f, f.Context(), b, "k", o.load)
			redistest.Eventually(f, "a waiter", func() bool { return inspect(f, a, "k").Waiting == 1 })
			id := inspect(f, a, "k").LoadID
			redistest.WantErr(f, operator.Revoke(f.Context(), "k", id, "it hangs"))
			next := o.next(f) // while the first has not returned
			redistest.Get(f, "the end of the load's ctx", l.ctx.Done())
			revoked := new(leasehold.RevokedError)
			redistest.Check(f, errors.As(context.Cause(l.ctx), &revoked) && revoked.Reason == "it hangs", "the cause is %v", context.Cause(l.ctx))
			l.returns("late")
			first.want("late", singleflight.Loaded)
			s := inspect(f, a, "k")
			redistest.Check(f, !s.Cached && s.Loading, "the late result was stored, or ended the other load: %+v", s)
			next.returns("new")
			second.wantValue("new")
			r, _, err := a.Peek(f.Context(), "k")
			redistest.Check(f, err == nil && r.Value == "new", "stored is %+v, %v", r, err)
			redistest.NoError(f, operator.Revoke(f.Context(), "k", id, "again"))
			redistest.WantErr(f, operator.Revoke(f.Context(), "k", "AAAAAAAA-1", "r"), leasehold.ErrNoLease)
			redistest.WantErr(f, operator.Revoke(f.Context(), "k", id, ""), leasehold.ErrInvalid)
		}
	})
}

// A load that is revoked before its process knows of it has not run: its caller asks anew.
func TestRevokeOfALoadWhoseReplyIsLost(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		f.teach()
		operator, _ := f.open()
		g, o := f.openVia(p), newOrigin(f)
		lost := p.HoldReply(harness.Does("load enter"), 1)
		first := fetch(f, f.Context(), g, "k", o.load)
		lost.Wait()
		redistest.WantErr(f, operator.Revoke(f.Context(), "k", inspect(f, operator, "k").LoadID, "it hangs"))
		p.CloseAll()
		o.next(f).returns("new")
		first.wantValue("new")
	})
}
