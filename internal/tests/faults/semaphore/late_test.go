package semaphore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// Somebody else's blocking command has the client's only connection: leases live
// on, and what cannot be given back at once is given back behind its back.
func TestPoolExhaustedByOthers(t *testing.T) {
	harness.EachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
		s := newSite(t, srv.Client())
		p := redistest.NewProxy(t, srv.Addr())
		rdb := p.Client(func(o *redis.Options) { o.PoolSize = 1 })
		h := s.closing(rdb, semaphore.Config{Limit: 1, TTL: lastingTTL})
		l := redistest.Must(h.Acquire(t.Context(), s.Key))(t)
		blocked := make(chan error, 1)
		go func() { blocked <- rdb.BLPop(context.Background(), 0, s.Part("list")).Err() }()
		harness.Until(t, 5*time.Second, func() error {
			if p.Count("BLPOP") == 0 {
				return errors.New("BLPOP isn't there")
			}
			return nil
		})
		renewals := harness.Answers(p, "renew")
		for range 3 { // a TTL
			select {
			case <-renewals:
			case <-l.Context().Done():
				t.Fatalf("lost: %v", context.Cause(l.Context()))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		at := time.Now()
		// A call that waits behind one without a connection goes in a pipeline, for which the
		// client has connections of its own. So calls may succeed, and they end in time.
		other, err := h.Acquire(ctx, "other")
		if err != nil {
			harness.IsErr(t, "acquire", err, context.DeadlineExceeded, leasehold.ErrUnavailable)
		} else if err := other.Release(); err != nil {
			harness.IsErr(t, "release of the other one", err, leasehold.ErrUnavailable)
		}
		redistest.AtMost(t, time.Since(at), 3*time.Second+100*time.Millisecond+harness.Slack, "acquire and release took %v")
		s.holds(1)
		at = time.Now()
		if err := l.Release(); err != nil {
			harness.IsErr(t, "release", err, leasehold.ErrUnavailable)
		}
		if took := time.Since(at); took > 3*time.Second+harness.Slack { // as Release has it
			t.Errorf("release took %v", took)
		}
		harness.WaitCount(t, "permits", 0, s.InUse)
		redistest.WantErr(t, s.RDB.RPush(t.Context(), s.Part("list"), "x").Err())
		redistest.NoError(t, <-blocked)
		s.empty(1, time.Second)
	})
}
