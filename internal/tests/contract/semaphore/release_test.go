package semaphore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestReleaseIsNilOnce(t *testing.T) {
	each(t, func(f *fixture) {
		s, _ := f.open(limit(2))
		l := f.take(s, "k", 2)
		errs := make([]error, 10)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = l.Release() })
		}
		wg.Wait()
		once := slices.Index(errs, nil)
		redistest.CheckNow(f, once >= 0, "no release succeeded: %v", errs)
		for _, err := range slices.Delete(errs, once, once+1) {
			redistest.WantErr(f, err, leasehold.ErrReleased)
			redistest.WantNot(f, err, leasehold.ErrLost, leasehold.ErrClosed)
			redistest.WantText(f, err, "leasehold: semaphore: release "+f.Family+"/k: ")
		}
		f.WantHeld("k", 0)
	})
}

func TestReleaseOfWhatIsGoneIsErrLost(t *testing.T) {
	each(t, func(f *fixture) {
		s, _ := f.open(limit(2))
		for _, n := range []int{1, 2} {
			l := f.take(s, "k", n)
			f.RDB.Del(f.Context(), f.Part("k", "holders"))
			redistest.WantErr(f, l.Release(), leasehold.ErrLost, redistest.Not(leasehold.ErrReleased, leasehold.ErrUnavailable))
			redistest.WantErr(f, l.Release(), leasehold.ErrReleased)
		}
	})
}

// Where Redis could not confirm, nobody knows: that is not a loss, and the permit
// is given back as soon as Redis is there again.
func TestReleaseWithoutAnAnswerIsErrUnavailable(t *testing.T) {
	some(t, func(f *fixture) {
		s, wire := f.open(limit(2))
		l := f.take(s, "k", 2)
		wire.Cut()
		redistest.WantErr(f, l.Release(), leasehold.ErrUnavailable, harness.ErrCut, redistest.Not(leasehold.ErrLost, leasehold.ErrReleased))
		f.WantHeld("k", 2)
		wire.Heal()
		redistest.Eventually(f, "the permits to be given back", func() bool { return len(f.Held("k")) == 0 })
		redistest.WantErr(f, l.Release(), leasehold.ErrReleased)
	})
}

// A release takes no ctx, so it has to end by itself where the network swallows
// everything, whatever the client's own time-outs are.
func TestReleaseBoundsItself(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		var leases []*semaphore.Lease
		for i, timeout := range []time.Duration{500 * time.Millisecond, -1} {
			s := f.openOn(p.Client(func(o *redis.Options) { o.ReadTimeout = timeout }), &harness.Wire{}, ttl(time.Hour))
			leases = append(leases, f.take(s, fmt.Sprint("k", i), 1))
		}
		f.Cleanup(p.Heal) // before the handles are closed
		p.Cut(true, true)
		ended := make(chan error, len(leases))
		for _, l := range leases {
			go func() { ended <- l.Release() }()
		}
		for range leases {
			redistest.WantErr(f, redistest.Get(f, "the release to end", ended), leasehold.ErrUnavailable, redistest.Not(leasehold.ErrLost))
		}
	})
}

func TestReleaseWorksAfterItsCtxWasCancelled(t *testing.T) {
	some(t, func(f *fixture) {
		s, _ := f.open()
		ctx, cancel := context.WithCancel(f.Context())
		l := redistest.Must(s.Acquire(ctx, "k"))(f)
		cancel()
		f.WantHeld("k", 1) // the lease is its holder's still
		release(f, l)
		f.WantHeld("k", 0)
	})
}

type ctxKey struct{}
