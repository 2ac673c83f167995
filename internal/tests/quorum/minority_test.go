package quorum

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/luascripts"
)

var sizes = map[string]int{"three": 3, "five": 5}

// While a minority is away, in whatever manner, locks are granted, renewed, handed over and given
// back as before.
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
					if err := held.Context().Err(); err != nil {
						f.Errorf("the lock was lost: %v", context.Cause(held.Context()))
					}
					redistest.WantErr(f, redistest.ErrorOf(b.TryLock(f.Context(), "held")), leasehold.ErrBusy)
					// It is handed over.
					got := make(chan error, 1)
					go func() {
						l, err := b.Lock(context.Background(), "held")
						if err == nil && l.Token() <= held.Token() {
							err = fmt.Errorf("token %d after %d", l.Token(), held.Token())
						}
						if err == nil {
							err = l.Unlock()
						}
						got <- err
					}()
					f.waiting(c, "held", 1)
					began := time.Now()
					f.unlock(held)
					redistest.NoError(f, <-got)
					f.Logf("unlock and hand-over took %v", time.Since(began))
					// Others come and go.
					began = time.Now()
					for range 10 {
						f.unlock(f.lock(c, "free"))
					}
					f.Logf("ten pairs took %v", time.Since(began))
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
		began := time.Now()
		if l, err := a.Lock(f.Context(), "k"); !errors.Is(err, leasehold.ErrUnavailable) {
			f.Errorf("Lock without a majority: %v, %v", l, err)
		}
		if l, err := a.TryLock(f.Context(), "k"); !errors.Is(err, leasehold.ErrUnavailable) {
			f.Errorf("TryLock without a majority: %v, %v", l, err)
		}
		f.Logf("both took %v", time.Since(began))
		redistest.Get(f, "the end of a lock without a majority", l.Context().Done())
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrLost)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrLost)
	})
}

// Whatever reply is lost, of whatever call, at whatever server: no turns overlap, tokens rise, and
// everybody is served.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	scripts := map[string]string{
		"enter": luascripts.QuorumEnter(), "leave": luascripts.QuorumLeave(), "yield": luascripts.QuorumYield(), "look": luascripts.QuorumLook(),
	}
	for name, script := range scripts {
		for k := range 4 {
			for size, n := range sizes {
				t.Run(fmt.Sprintf("%s/%s %d", size, name, k+1), func(t *testing.T) {
					newest(t, n, func(f *fleet) {
						var faults []*redistest.Fault
						for i := range n {
							faults = append(faults, f.proxies[i].EatReply(redistest.Runs(script), k+1+i))
						}
						j := &judge{tb: f}
						var all sync.WaitGroup
						for range 3 {
							m := f.open(ttl(3 * time.Second))
							for range 2 {
								all.Go(func() {
									for range 4 {
										l, err := m.Lock(context.Background(), "k")
										if err != nil {
											f.Error(err)
											return
										}
										j.enter(l.Token())
										j.leave()
										if err := l.Unlock(); err != nil && !errors.Is(err, leasehold.ErrUnavailable) {
											f.Error(err)
										}
									}
								})
							}
						}
						all.Wait()
						if name == "enter" || name == "leave" {
							for _, fault := range faults {
								fault.Wait()
							}
						}
					})
				})
			}
		}
	}
}

// span is how long a random run takes: LEASEHOLD_QUORUM_FOR, or a few seconds.
func span(t *testing.T) time.Duration {
	text, set := os.LookupEnv("LEASEHOLD_QUORUM_FOR")
	if !set {
		return 8 * time.Second
	}
	d := redistest.Must(time.ParseDuration(text))(t)
	return d
}

// Random faults strike a minority of the servers, one after the other, while handles compete. The
// witness sees every holder for as long as its lock claims to be held. LEASEHOLD_QUORUM_FOR is how
// long a run takes, LEASEHOLD_SEED what it does.
func TestRandomFaults(t *testing.T) {
	seed := redistest.Seed(t)
	for size, n := range sizes {
		t.Run(size, func(t *testing.T) { Random(t, Run{Servers: n, Seed: seed, For: span(t)}) })
	}
}

// The same, while the clocks of the servers differ and jump.
func TestRandomFaultsAndClocks(t *testing.T) {
	seed := redistest.Seed(t)
	for size, n := range sizes {
		t.Run(size, func(t *testing.T) { Random(t, Run{Servers: n, Seed: seed, For: span(t), Clocks: true}) })
	}
}
