package singleflight

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A message that came before the subscription stood is asked for as soon as it stands.
func TestMissedMessageIsAskedForAtOnce(t *testing.T) {
	bubble(t, func(f *fixture) {
		other, g, wire := f.pair()
		fetch(f, f.Context(), other, "warm", gives("v")).got() // it is connected
		first, l, _ := f.loading(g, "k")
		wire.HoldDials()
		waits := fetch(f, f.Context(), other, "k", never(f))
		synctest.Wait()
		l.returns("v")
		first.got()
		time.Sleep(300 * time.Millisecond)
		began := time.Now()
		wire.Heal()
		waits.want("v", singleflight.Shared)
		redistest.AtMost(f, time.Since(began), 50*time.Millisecond, "told after %v")
	})
}

// A caller that joins a refresh that turns out not to be this process's waits for the other,
// although the refresh would not have.
func TestJoiningARefreshThatIsNotGranted(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other, wire := f.pair(staleFor)
		f.stalled(g, "k")
		o := newOrigin(f)
		fetch(f, f.Context(), other, "k", o.load).want("old", singleflight.Stale)
		l := o.next(f)
		wire.Stall("load enter")
		fetch(f, f.Context(), g, "k", never(f)).want("old", singleflight.Stale) // its refresh is under way
		f.RDB.Del(f.Context(), f.Part("k", "value"))                            // so that there is nothing to be served
		joins := fetch(f, f.Context(), g, "k", never(f))
		synctest.Wait()
		wire.Heal()
		synctest.Wait()
		redistest.CheckNow(f, !joins.ended(), "%+v, %v", joins.result, joins.err)
		l.returns("new")
		joins.want("new", singleflight.Shared)
	})
}
