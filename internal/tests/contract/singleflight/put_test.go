package singleflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A Put is what callers get that come after it; a load that was under way hands its
// result to its own callers, and does not store it.
func TestPutStandsAgainstALoadUnderWay(t *testing.T) {
	each(t, func(f *fixture) {
		g, _ := f.open()
		other, _ := f.open()
		o := newOrigin(f)
		old := fetch(f, f.Context(), g, "k", o.load)
		l := o.next(f)
		redistest.WantErr(f, other.Put(f.Context(), "k", "put"))
		for _, of := range []*singleflight.Group[string]{g, other} {
			wantStored(f, of, "k", "put")
		}
		l.returns("loaded")
		old.wantValue("loaded")
		fetch(f, f.Context(), g, "k", never(f)).want("put", singleflight.Cached)
		redistest.WantErr(f, g.Put(f.Context(), "k", "later"))
		fetch(f, f.Context(), other, "k", never(f)).wantValue("later")
	})
}

// A Put drops what other schemas have, and takes the right to store from their loads.
func TestPutReachesAllSchemas(t *testing.T) {
	each(t, func(f *fixture) {
		one, _ := f.open(func(c *singleflight.Config[string]) { c.Schema = 1 })
		two, _ := f.open(func(c *singleflight.Config[string]) { c.Schema = 2 })
		fetch(f, f.Context(), two, "k", gives("cached")).got()
		o := newOrigin(f)
		three, _ := f.open(func(c *singleflight.Config[string]) { c.Schema = 3 })
		loading := fetch(f, f.Context(), three, "k", o.load)
		l := o.next(f)
		redistest.WantErr(f, one.Put(f.Context(), "k", "put"))
		wantNothing(f, two, "k")
		l.returns("old")
		loading.got()
		wantNothing(f, three, "k")
		fetch(f, f.Context(), one, "k", never(f)).wantValue("put")
	})
}

// A value that may not be stored ends what was cached, and Put says so.
func TestPutThatIsNotStored(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open(func(c *singleflight.Config[string]) {
			c.MaxValueBytes = 100
			c.TTLFor = func(_ string, v string) time.Duration {
				if v == "secret" {
					return -1
				}
				return 0
			}
		})
		for _, v := range []string{"secret", strings.Repeat("large", 100)} {
			redistest.WantErr(f, g.Put(f.Context(), "k", "there"))
			err := g.Put(f.Context(), "k", v)
			redistest.WantErr(f, err, singleflight.ErrNotStored)
			redistest.Check(f, errors.Is(err, singleflight.ErrTooLarge) == (v != "secret"), "%v", err)
			wantNothing(f, g, "k")
		}
	})
}

// Sentinels of Config.Errors are found in every process that shares a failure.
func TestSentinelsCross(t *testing.T) {
	some(t, func(f *fixture) {
		gone, broken := errors.New("sql: no rows"), errors.New("broken")
		mod := func(c *singleflight.Config[string]) { c.Errors, c.ErrorTTL = []error{gone, broken}, time.Minute }
		g, _ := f.open(mod)
		other, _ := f.open(mod)
		redistest.WantErr(f, fetch(f, f.Context(), g, "k", fails(fmt.Errorf("user 7: %w", gone))).failed(), gone)
		err := fetch(f, f.Context(), other, "k", never(f)).failed()
		redistest.WantErr(f, err, gone, redistest.Not(broken), redistest.Says("user 7: sql: no rows"))
		var remote *singleflight.RemoteError
		redistest.Check(f, errors.As(err, &remote) && remote.Text == "user 7: sql: no rows", "%+v", remote)
		redistest.Expect(f, inspect(f, other, "k").Failure, "user 7: sql: no rows", "Failure is %v")
	})
}

// Two versions of a type do not read each other's bytes, and both have what they load.
func TestVersionsOfATypeSideBySide(t *testing.T) {
	type a struct {
		N int
		S string
	}
	type b struct{ Name string }
	some(t, func(f *fixture) {
		ga, _ := openOf[a](f)
		gb, _ := openOf[b](f)
		for range 2 {
			r, err := ga.Do(f.Context(), "k", func(context.Context) (a, error) { return a{1, "x"}, nil })
			redistest.Check(f, err == nil && r == (a{1, "x"}), "%v, %v", r, err)
			if r, err := gb.Do(f.Context(), "k", func(context.Context) (b, error) { return b{"y"}, nil }); err != nil || r != (b{"y"}) {
				f.Error(r, err)
			}
		}
		sa, sb := ga.Stats(), gb.Stats()
		redistest.Check(f, sa.Loads == 1 && sb.Loads == 1 && sa.Undecodable+sb.Undecodable == 0, "%+v, %+v", sa, sb)
	})
}
