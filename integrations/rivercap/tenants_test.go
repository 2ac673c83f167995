package rivercap_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/integrations/rivercap"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

type pgxTx = pgx.Tx

// A tenant with 1,000 jobs gets what its cap allows, and does not crowd out nine others: not
// from the workers, and not by the updates of rows that its snoozes make.
func TestManyJobsOfOneTenant(t *testing.T) {
	t.Parallel()
	const (
		jobs, others, limit = 1000, 45, 3
		work                = 50 * time.Millisecond
		ideal               = jobs * work / limit
	)
	_, pool := newDatabase(t)
	v := redistest.Newest(t)
	rdb := redistest.Shared(t, v).Client()
	family := redistest.Name(t)

	var mu sync.Mutex
	var late []time.Duration // of the other tenants' jobs
	var running, done, worked atomic.Int64
	all := make(chan struct{})
	var clients []*river.Client[pgxTx]
	for range 2 { // each like a process of its own
		caps := captest.New(t, rdb, semaphore.Config{Name: family, Limit: limit})
		clients = append(clients, newClient(t, pool, caps, rivercap.Config{}, 50, func(_ context.Context, j *river.Job[job]) error {
			if j.Args.Tenant == tenant {
				redistest.AtMost(t, running.Add(1), limit, "%d jobs of the tenant run at the same time")
				defer running.Add(-1)
			} else {
				mu.Lock()
				late = append(late, time.Since(j.CreatedAt))
				mu.Unlock()
			}
			began := time.Now()
			<-time.After(work)
			if j.Args.Tenant == tenant {
				worked.Add(int64(time.Since(began)))
			}
			if done.Add(1) == jobs+others {
				close(all)
			}
			return nil
		}))
	}
	var params []river.InsertManyParams
	for range jobs {
		params = append(params, river.InsertManyParams{Args: job{tenant}})
	}
	redistest.Must(clients[0].InsertMany(t.Context(), params))(t)
	began := time.Now()
	for _, client := range clients {
		start(t, client)
	}
	// The others come one by one, all the time.
	for i := range others {
		insert(t, clients[0], fmt.Sprintf("tenant-%d", i%9), nil)
		<-time.After(ideal / others * 3 / 4)
	}
	select {
	case <-all:
	case <-time.After(3 * ideal):
		t.Fatalf("%d of %d jobs are done", done.Load(), jobs+others)
	}
	took := time.Since(began)

	var snoozes, attempts int
	redistest.WantErr(t, pool.QueryRow(t.Context(), `SELECT coalesce(sum((metadata->>'snoozes')::int), 0), max(attempt) FROM river_job`).Scan(&snoozes, &attempts))
	slices.Sort(late)
	least := time.Duration(worked.Load()) / limit // a busy machine makes jobs longer
	t.Logf("%v, at least %v; %d snoozes; the others: p50 %v, longest %v", took, least, snoozes, late[len(late)/2], late[len(late)-1])
	redistest.AtMost(t, took, least*3/2, "it took %v")
	most := int(4000 * took / ideal) // a job that waits for longer snoozes more often
	redistest.Check(t, snoozes <= most, "%d snoozes; want at most %d", snoozes, most)
	if p50 := late[len(late)/2]; p50 > 500*time.Millisecond {
		t.Errorf("half of the other tenants' jobs waited for more than %v; want at most 0.5 s", p50)
	}
	redistest.Expect(t, attempts, 1, "a job took %d attempts")
}
