package semaphore

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// The server cannot be reached, by a refusal or by silence: the caller is told in
// bounded time, whether a ctx bounds it or not, and the calls are few.
func TestUnreachableServer(t *testing.T) {
	v := redistest.Newest(t) // no server takes part
	var all sync.WaitGroup
	defer all.Wait()
	for name, fault := range map[string]func(srv *redistest.Server, p *redistest.Proxy){
		"refuses": func(_ *redistest.Server, p *redistest.Proxy) { p.Refuse(true); p.CloseAll() },
		"silent":  func(_ *redistest.Server, p *redistest.Proxy) { p.Cut(true, true) },
		"gone":    func(srv *redistest.Server, p *redistest.Proxy) { srv.Kill(); p.CloseAll() },
	} {
		for _, warm := range []bool{true, false} {
			all.Go(func() {
				t.Run(fmt.Sprintf("%s, warm %v", name, warm), func(t *testing.T) {
					srv := redistest.StartServer(t, v)
					p := redistest.NewProxy(t, srv.Addr())
					var dials atomic.Int64
					rdb := p.Client(func(o *redis.Options) {
						o.ReadTimeout = time.Second
						o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
							dials.Add(1)
							return new(net.Dialer).DialContext(ctx, network, addr)
						}
					})
					h, err := semaphore.New(rdb, semaphore.Config{Name: "n", Limit: 1, TTL: time.Second})
					if err != nil {
						t.Fatal(err)
					}
					if warm {
						if l, err := h.Acquire(t.Context(), "k"); err != nil || l.Release() != nil {
							t.Fatal(err)
						}
					}
					fault(srv, p)
					unreachable(t, h, &dials, rdb.Options().ReadTimeout)
				})
			})
		}
	}
}

func unreachable(t *testing.T, h *semaphore.Semaphore, dials *atomic.Int64, readTimeout time.Duration) {
	// Within patience a first try fails, on a busy machine too; a read does not time out.
	const patience = 900 * time.Millisecond
	var all sync.WaitGroup
	for name, acquire := range map[string]func(context.Context, string) (*semaphore.Lease, error){
		"acquire": h.Acquire, "try acquire": h.TryAcquire,
	} {
		all.Go(func() {
			at := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := acquire(ctx, "k")
			harness.IsErr(t, name, err, leasehold.ErrUnavailable)
			if took := time.Since(at); took > patience+harness.Slack {
				t.Errorf("%s whose ctx ended after %v took %v", name, patience, took)
			}
		})
		all.Go(func() {
			at := time.Now()
			_, err := acquire(context.Background(), "k")
			harness.IsErr(t, name, err, leasehold.ErrUnavailable)
			took := time.Since(at)
			t.Logf("%s without a bound took %v: %v", name, took, err)
			// As Acquire's documentation has it: 3 s of tries, and what the last
			// one of them takes to time out.
			if took > 3*time.Second+readTimeout+harness.Slack {
				t.Errorf("%s without a bound took %v", name, took)
			}
		})
	}
	dials.Store(0)
	began := time.Now()
	all.Wait()
	// The client itself dials five times for each of our calls.
	rate := float64(dials.Load()) / time.Since(began).Seconds()
	t.Logf("%.0f dials a second", rate)
	if rate > 200 {
		t.Errorf("%.0f dials a second for four calls", rate)
	}
	// Close is bounded by its ctx; what is left ends by itself, when what may have
	// been granted has expired.
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := h.Close(ctx); err != nil {
		harness.IsErr(t, "close", err, context.DeadlineExceeded)
	}
	if err := h.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
