package semaphore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// A copy of a lease would give back what the lease itself may still use, and its Context would
// end instead of the lease's own: the panic names the misuse. go vet finds no such copies.
func TestUseOfACopyNamesTheMisuse(t *testing.T) {
	bubble(t, func(f *fixture) {
		s, _ := f.open(limit(1))
		l := f.take(s, "k", 1)
		synctest.Wait()
		copied := *l
		for name, lease := range map[string]*semaphore.Lease{"a copy": &copied, "the zero value": new(semaphore.Lease)} {
			for op, use := range map[string]func(){"release": func() { _ = lease.Release() }, "context": func() { lease.Context() }} {
				said := func() (said string) {
					defer func() { said = fmt.Sprint(recover()) }()
					use()
					return ""
				}()
				redistest.Check(f, strings.Contains(said, "leasehold: "+op+" of a lease") && strings.Contains(said, "copy"),
					"%s of %s: %q; want a panic that names the misuse", op, name, said)
			}
		}
		f.WantHeld("k", 1)
		release(f, l)
		f.WantHeld("k", 0)
		redistest.WantErr(f, l.Release(), leasehold.ErrReleased)
	})
}

// The user closed the client first: Close cannot give back what is held, and does not say that it did.
func TestCloseAfterTheClientSaysWhatItLeft(t *testing.T) {
	some(t, func(f *fixture) {
		rdb := f.Connect(&harness.Wire{})
		s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: f.Family, Limit: 1, TTL: 2 * time.Second}))(f)
		redistest.Must(s.Acquire(f.Context(), "k"))(f)
		redistest.WantErr(f, rdb.Close())
		ctx, cancel := context.WithTimeout(f.Context(), 100*time.Millisecond)
		defer cancel()
		err := s.Close(ctx)
		if len(f.Held("k")) > 0 {
			redistest.WantErr(f, err, context.DeadlineExceeded, leasehold.ErrUnavailable)
		}
		redistest.WantErr(f, redistest.ErrorOf(s.Acquire(f.Context(), "k")), leasehold.ErrClosed)
		// With time it ends with the lease's term.
		redistest.Expect(f, s.Close(f.Context()), nil, "the second Close: %v")
		redistest.Eventually(f, "the end of the lease", func() bool { return len(f.Held("k")) == 0 })
	})
}

// Each error of an outage has its cause behind it.
func TestUnavailableCarriesACause(t *testing.T) {
	redistest.NeedServers(t)
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "n", Limit: 1}))(t)
	for name, err := range map[string]error{
		"try acquire": func() error { _, err := s.TryAcquire(t.Context(), "k"); return err }(),
		"acquire":     func() error { _, err := s.Acquire(t.Context(), "k"); return err }(),
	} {
		redistest.WantErr(t, err, leasehold.ErrUnavailable)
		redistest.Check(t, strings.Contains(err.Error(), "connection refused"), "%s: %v; want that the connection was refused", name, err)
	}
	redistest.NoError(t, s.Close(t.Context()))
	redistest.WantErr(t, redistest.ErrorOf(semaphore.New((*redis.Client)(nil), semaphore.Config{Name: "n", Limit: 1})), leasehold.ErrInvalid)
}
