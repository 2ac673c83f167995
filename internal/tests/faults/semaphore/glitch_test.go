package semaphore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// For a second every connection that carries anything goes silent for good,
// as behind a firewall that forgets what it knew; new ones are well after that.
// Leases that have as long left to live are renewed on those, whatever
// still waits for an answer on the others. The newest server alone: what is
// tested is the client.
func TestLeasesOutliveDeadConnections(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	s := newSite(t, srv.Client())
	p := redistest.NewProxy(t, srv.Addr())
	const ttl = 3 * time.Second
	h := s.closing(p.Client(), semaphore.Config{Limit: 1, TTL: ttl})
	var all []*semaphore.Lease
	for i := range 100 { // renewed at different times
		l := redistest.Must(h.TryAcquire(t.Context(), fmt.Sprint(i)))(t)
		all = append(all, l)
		time.Sleep(ttl / 3 / 100)
	}
	end := time.Now().Add(time.Second)
	p.SetHook(func(ev redistest.Event) redistest.Action {
		if ev.Stage == redistest.OnReply && time.Now().Before(end) {
			return redistest.Vanish
		}
		return redistest.Pass
	})
	lost := 0
	var cause error
	for _, l := range all {
		harness.Until(t, 2*ttl, func() error {
			if err := context.Cause(l.Context()); err != nil {
				lost, cause = lost+1, err
				return nil
			}
			if !l.Deadline().After(end.Add(ttl - ttl/40)) {
				return errors.New("not renewed since")
			}
			return nil
		})
	}
	redistest.Check(t, lost <= 0, "%d of 100 leases were lost by a second of silence: %v", lost, cause)
	p.SetHook(nil)
	p.CloseAll()
}
