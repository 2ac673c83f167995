package singleflight

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// A server that has become a replica reads, and writes nothing.
func TestFaultReadOnly(t *testing.T) {
	t.Parallel()
	_, replica := redistest.StartPair(t, redistest.Newest(t))
	s := newFaultSite(t, replica.Client())
	g, local := s.group(replica.Client()), s.group(replica.Client(), loadLocally)
	began := time.Now()
	invalidated := make(chan error, 1)
	go func() { invalidated <- g.Invalidate(context.Background(), s.Key) }()
	locally := startFetch(t.Context(), local, s.Key, loaderOf("value"))
	redistest.WantErr(t, redistest.ErrorOf(g.Do(t.Context(), s.Key, loaderOf("value"))), leasehold.ErrUnavailable)
	t.Logf("Do said so after %v", time.Since(began))
	redistest.WantErr(t, harness.Got(t, 10*time.Second, "the Invalidate", invalidated), leasehold.ErrUnavailable)
	t.Logf("Invalidate said so after %v", time.Since(began))
	wantValue(t, "LoadLocally", "value", locally)
	t.Logf("LoadLocally had its value after %v", time.Since(began))
	redistest.AtMost(t, time.Since(began), 5*time.Second+harness.Slack, "calls to a replica took %v")
}

// Memory runs out during a load: the value is returned to all, not stored, and
// nobody gets an error.
func TestFaultOutOfMemoryDuringALoad(t *testing.T) {
	srv := redistest.StartServer(t, redistest.Newest(t))
	s := newFaultSite(t, srv.Client())
	g, other := s.group(srv.Client()), s.group(srv.Client())
	warmUp(t, g)
	load, began, gate := oldThenNew()
	leads := startFetch(t.Context(), g, s.Key, load)
	harness.Got(t, 10*time.Second, "the load", began)
	joins, waits := startFetch(t.Context(), g, s.Key, load), startFetch(t.Context(), other, s.Key, load)
	s.WaitQueued(1)
	redistest.WantErr(t, s.RDB.ConfigSet(t.Context(), "maxmemory", "1").Err())
	close(gate)
	for who, done := range map[string]<-chan fetchResult{"the loading caller": leads, "the caller that joined": joins, "the waiting caller": waits} {
		wantValue(t, who, "old", done)
	}
	redistest.Expect(t, s.RDB.Exists(t.Context(), s.Part("value")).Val(), 0, "the value is stored")
	s.clean(0)
	redistest.WantErr(t, s.RDB.ConfigSet(t.Context(), "maxmemory", "0").Err())
	wantValue(t, "the later caller", "new", startFetch(t.Context(), other, s.Key, load))
}
