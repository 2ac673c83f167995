package rivercap_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/integrations/rivercap"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func init() { redistest.RegisterChild("worker", worker) }

// worker works jobs, in a process of its own, until its input ends. A job never ends.
func worker(args []string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, args[0])
	if err != nil {
		return 1
	}
	defer pool.Close()
	caps, err := semaphore.New(redis.NewClient(&redis.Options{Addr: args[1]}), semaphore.Config{Name: args[2], Limit: 1, TTL: time.Second})
	if err != nil {
		return 1
	}
	capped, err := rivercap.New(caps, rivercap.Config{Key: tenantOf})
	if err != nil {
		return 1
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[job]) error {
		fmt.Println("working")
		<-ctx.Done()
		return ctx.Err()
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Logger: quiet(), Middleware: []rivertype.Middleware{capped}, Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 5}},
	})
	if err != nil || client.Start(ctx) != nil {
		return 1
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}

// A worker that is killed loses no job: River rescues it, and the permit is free after the TTL.
// That uses up an attempt, as the documentation says.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	const stuckAfter = time.Second
	url, pool := newDatabase(t)
	server := redistest.Shared(t, redistest.Newest(t))
	family := redistest.Name(t)
	caps := captest.New(t, server.Client(), semaphore.Config{Name: family, Limit: 1, TTL: time.Second})
	client := newClient(t, pool, caps, rivercap.Config{}, 5, func(context.Context, *river.Job[job]) error { return nil },
		func(cfg *river.Config) { cfg.JobTimeout, cfg.RescueStuckJobsAfter = stuckAfter, stuckAfter })
	row := insert(t, client, tenant, nil)
	child := redistest.StartChild(t, "worker", url, server.Addr(), family)
	child.Expect("working")
	child.Kill()
	// River looks for stuck jobs as it starts, and then every 30 s. The job is stuck a second after it began.
	began := redistest.Must(client.JobGet(t.Context(), row.ID))(t).AttemptedAt
	time.Sleep(time.Until(began.Add(stuckAfter + 100*time.Millisecond)))
	start(t, client)
	if row := await(t, client, row.ID, rivertype.JobStateCompleted); row.Attempt != 2 {
		t.Errorf("it took %d attempts; the documentation says that a kill uses up one", row.Attempt)
	}
	captest.WantState(t, caps, 0, 0)
}
