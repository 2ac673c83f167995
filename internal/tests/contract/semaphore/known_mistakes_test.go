package semaphore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/semaphore"
)

// Here are ways in which other libraries have lost permits, or their users' patience.
// Those about locks are in the folder of the package mutex.

// A retried acquire must find itself, not "full": the server ran the first one
// and only its reply was lost.
func TestAcquireWhoseReplyIsLost(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		s, other := f.openVia(p, limit(3)), f.openVia(p, limit(3))
		release(f, f.take(s, "warm", 1)) // the script is known from here on
		for _, n := range []int{1, 3} {
			for lost := 1; lost <= 2; lost++ {
				key := fmt.Sprintf("%d-%d", n, lost)
				for k := 1; k <= lost; k++ {
					defer p.EatReply(redistest.Runs(luascripts.PermitsEnter()), k).Wait()
				}
				l := f.take(s, key, n)
				f.WantHeld(key, n)
				rest := 3 - n
				if rest > 0 {
					release(f, f.take(other, key, rest))
				}
				if _, err := other.TryAcquireN(f.Context(), key, rest+1); err == nil {
					f.Fatalf("%d permits beside %d of 3", rest+1, n)
				}
				release(f, l)
				f.WantHeld(key, 0)
			}
		}
	})
}

// A release that ran and whose reply was lost is a success, and its retry leaves
// alone the waiter that got the permit by it.
func TestReleaseWhoseReplyIsLost(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		s, other := f.openVia(p), f.openVia(p)
		release(f, f.take(s, "warm", 1))
		for lost := 1; lost <= 2; lost++ {
			for name, next := range map[string]*semaphore.Semaphore{"nobody": nil, "own": s, "other": other} {
				key := fmt.Sprintf("%s-%d", name, lost)
				l := f.take(s, key, 1)
				var w *waiting
				if next != nil {
					w = f.wait(f.Context(), next, key, 1)
				}
				for k := 1; k <= lost; k++ {
					defer p.EatReply(redistest.Runs(luascripts.PermitsLeave()), k).Wait()
				}
				redistest.Require(f, l.Release(), nil, "%s waits: release: %v", name)
				if next == nil {
					f.WantHeld(key, 0)
					continue
				}
				got := w.Got()
				f.WantHeld(key, 1)
				release(f, got)
				f.WantHeld(key, 0)
			}
		}
	})
}

// Leases of different length on one key end each by itself: the short one frees
// its permit, and neither its expiry nor its purge takes the long one along.
func TestTwoTTLsOnOneKey(t *testing.T) {
	each(t, func(f *fixture) {
		long, _ := f.open(limit(2))
		short, wire := f.open(limit(2), ttl(time.Second))
		for _, key := range []string{"long-first", "short-first"} {
			var keep, dies *semaphore.Lease
			if key == "long-first" {
				keep, dies = f.take(long, key, 1), f.take(short, key, 1)
			} else {
				dies, keep = f.take(short, key, 1), f.take(long, key, 1)
			}
			wire.Cut()
			redistest.Get(f, "the short lease to end", dies.Context().Done())
			redistest.Eventually(f, "the short lease's permit", func() bool {
				l, err := long.TryAcquire(f.Context(), key) // purges, too
				if err == nil {
					release(f, l)
				}
				return err == nil
			})
			f.WantHeld(key, 1)
			if left := f.RDB.PTTL(f.Context(), f.Part(key, "holders")).Val(); left < 15*time.Second {
				f.Fatalf("the key of a lease of 30 s expires in %v", left)
			}
			release(f, keep)
			wire.Heal()
			redistest.WantErr(f, dies.Release(), leasehold.ErrLost)
		}
	})
}

// An acquire that is cancelled mid-call returns at once, and what it was granted
// is given back although its ctx is dead; so is what it will be granted, where
// its request is overtaken by the giving back.
func TestAcquireCancelledMidCall(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		other, _ := f.open(limit(2))
		s := f.openVia(p, limit(2))
		release(f, f.take(s, "warm", 1))
		ran := redistest.Watch(p)
		for _, n := range []int{1, 2} {
			for name, acquire := range map[string]func(context.Context, string, int) (*semaphore.Lease, error){
				"acquire": s.AcquireN, "try": s.TryAcquireN,
			} {
				for hold, stop := range map[string]func(func([]string) bool, int) *redistest.Fault{
					"reply": p.HoldReply, "request": p.HoldRequest,
				} {
					key := fmt.Sprintf("%s-%d-%s", name, n, hold)
					fault := stop(redistest.Runs(luascripts.PermitsEnter()), 1)
					defer fault.Release()
					holders := f.Part(key, "holders")
					ctx, cancel := context.WithCancel(f.Context())
					ended := make(chan error, 1)
					go func() {
						_, err := acquire(ctx, key, n)
						ended <- err
					}()
					fault.Wait()
					cancel()
					err := redistest.Get(f, "the cancelled "+name, ended)
					redistest.WantErr(f, err, context.Canceled, leasehold.ErrUnavailable)
					redistest.WantNot(f, err, leasehold.ErrBusy)
					redistest.Eventually(f, "the leave", func() bool { return ran(luascripts.PermitsLeave(), holders) > 0 })
					f.WantHeld(key, 0)
					fault.Release()
					if hold == "request" {
						redistest.Eventually(f, "the late enter", func() bool { return ran(luascripts.PermitsEnter(), holders) > 0 })
						f.WantHeld(key, 0)
					}
					redistest.Require(f, f.Queued(key), 0, "%s: %d waiters are left", key)
					release(f, f.take(other, key, 2))
				}
			}
		}
	})
}

// Whatever ends a later attempt, its rollback takes away nothing from the first
// holder.
func TestRollbackOfAFailedAcquire(t *testing.T) {
	some(t, func(f *fixture) {
		holder, _ := f.open(limit(2))
		const key = "k"
		first := f.take(holder, key, 2)
		same := f.Held(key)
		other, wire := f.open(limit(2))
		for _, s := range []*semaphore.Semaphore{holder, other} {
			_, err := s.TryAcquireN(f.Context(), key, 2)
			redistest.WantErr(f, err, leasehold.ErrBusy)
			ctx, cancel := context.WithCancel(f.Context())
			w := f.wait(ctx, s, key, 1)
			cancel()
			redistest.WantErr(f, w.Failed(), context.Canceled)
			redistest.Eventually(f, "the waiter to leave", func() bool { return f.Queued(key) == 0 })
		}
		wire.Cut()
		_, err := other.TryAcquire(f.Context(), key)
		redistest.WantErr(f, err, leasehold.ErrUnavailable)
		wire.Heal()
		harness.Close(f, other)
		if got := f.Held(key); fmt.Sprint(got) != fmt.Sprint(same) {
			f.Fatalf("the first holder has %v, had %v", got, same)
		}
		release(f, first)
	})
}
