package quorum

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

var sizes = map[string]int{"three": 3, "five": 5}

// While a minority is away, in whatever manner, locks are granted, renewed, handed over and given back as before.
func TestAMinorityIsAway(t *testing.T) {
	ways := map[string]func(f *fleet, i int){
		"killed": func(f *fleet, i int) { f.reals[i].Kill() },
		"hung":   func(f *fleet, i int) { f.reals[i].Pause(); f.Cleanup(f.reals[i].Resume) },
		"cut":    func(f *fleet, i int) { f.proxies[i].Cut(true, true); f.Cleanup(f.proxies[i].Heal) },
		"deaf":   func(f *fleet, i int) { f.proxies[i].Cut(false, true); f.Cleanup(f.proxies[i].Heal) },
	}
	t.Parallel()
	for size, n := range sizes {
		for way, away := range ways {
			t.Run(size+"/"+way, func(t *testing.T) {
				newest(t, n, func(f *fleet) {
					const term = time.Second
					a, b, c := f.open(ttl(term)), f.open(ttl(term)), f.open(ttl(term))
					f.begin(a)
					held := f.lock(a, "held")
					for i := range n / 2 {
						away(f, i)
					}
					// A lock that is held stays held for several terms, by renewals.
					time.Sleep(3 * term)
					redistest.Expect(f, context.Cause(held.Context()), nil, "the lock was lost: %v")
					redistest.WantErr(f, redistest.ErrorOf(b.TryLock(f.Context(), "held")), leasehold.ErrBusy)
					// It is handed over.
					got := f.turn(b, "held")
					f.waiting(c, "held", 1)
					f.unlock(held)
					got.Got()
					// Others come and go.
					began := time.Now()
					for range 10 {
						f.unlock(f.lock(c, "free"))
					}
					redistest.AtMost(f, time.Since(began), 4*time.Second, "ten pairs took %v")
				})
			})
		}
	}
}

// Without a majority nothing is granted, and the caller hears why.
func TestNoMajority(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		a := f.open(ttl(2 * time.Second))
		f.begin(a)
		l := f.lock(a, "held")
		f.reals[0].Kill()
		f.reals[2].Kill()
		redistest.WantErr(f, redistest.ErrorOf(a.Lock(f.Context(), "k")), leasehold.ErrUnavailable)
		redistest.WantErr(f, redistest.ErrorOf(a.TryLock(f.Context(), "k")), leasehold.ErrUnavailable)
		redistest.Get(f, "the end of a lock without a majority", l.Context().Done())
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrLost)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrLost)
	})
}

// A server that hangs delays Close by the time of a call, and not until the votes there end.
func TestCloseBesideAServerThatHangs(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		a := f.open() // its votes last for 30 s
		f.begin(a)
		l := f.lock(a, "k")
		f.proxies[0].Cut(true, true)
		f.Cleanup(f.proxies[0].Heal)
		f.unlock(l)
		time.Sleep(8 * time.Second) // until the server is known not to answer, and probes overlap
		began := time.Now()
		redistest.NoError(f, a.Close(f.Context()))
		redistest.AtMost(f, time.Since(began), 12*time.Second, "Close took %v")
	})
}
