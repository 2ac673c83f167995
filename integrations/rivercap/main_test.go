package rivercap_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of package database
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/integrations/rivercap"
	"github.com/leasehold-go/leasehold/internal/database"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const tenant = captest.Tenant

// job is a job of the tests. The worker decides its work.
type job struct {
	Tenant string `json:"tenant"`
}

func (job) Kind() string { return "job" }

func tenantOf(row *rivertype.JobRow) string {
	var j job
	_ = json.Unmarshal(row.EncodedArgs, &j)
	return j.Tenant
}

// newDatabase starts a PostgreSQL with River's tables, and returns its URL and connections.
func newDatabase(t *testing.T) (string, *pgxpool.Pool) {
	t.Helper()
	db, err := database.StartPostgres(t.Context())
	if errors.Is(err, database.ErrNoPostgres) && os.Getenv("LEASEHOLD_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	redistest.WantErr(t, err)
	t.Cleanup(db.Close)
	pool := redistest.Must(pgxpool.New(context.Background(), db.URL))(t)
	t.Cleanup(pool.Close)
	migrator := redistest.Must(rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet()}))(t)
	redistest.Must(migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil))(t)
	return db.URL, pool
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// newClient makes a client whose jobs are capped and run work.
func newClient(t testing.TB, pool *pgxpool.Pool, caps *semaphore.Semaphore, cfg rivercap.Config, maxWorkers int,
	work func(ctx context.Context, j *river.Job[job]) error, mod ...func(*river.Config),
) *river.Client[pgxTx] {
	t.Helper()
	if cfg.Key == nil {
		cfg.Key = tenantOf
	}
	capped := redistest.Must(rivercap.New(caps, cfg))(t)
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(work))
	config := &river.Config{
		Logger:     quiet(),
		Middleware: []rivertype.Middleware{capped},
		Queues:     map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers}},
		Workers:    workers,
	}
	for _, m := range mod {
		m(config)
	}
	return redistest.Must(river.NewClient(riverpgxv5.New(pool), config))(t)
}

// start starts a client, which stops at the end of the test.
func start(t testing.TB, client *river.Client[pgxTx]) {
	t.Helper()
	redistest.WantErr(t, client.Start(context.Background()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), redistest.Soon)
		defer cancel()
		_ = client.StopAndCancel(ctx)
	})
}

func insert(t testing.TB, client *river.Client[pgxTx], tenant string, opts *river.InsertOpts) *rivertype.JobRow {
	t.Helper()
	return redistest.Must(client.Insert(t.Context(), job{tenant}, opts))(t).Job
}

// await waits until a job is in that state.
func await(t testing.TB, client *river.Client[pgxTx], id int64, state rivertype.JobState) *rivertype.JobRow {
	t.Helper()
	deadline := time.Now().Add(time.Minute) // River elects a leader anew 15 s after the death of one
	for {
		row := redistest.Must(client.JobGet(t.Context(), id))(t)
		if row.State == state {
			return row
		}
		redistest.CheckNow(t, !time.Now().After(deadline), "job %d is %s; want %s", id, row.State, state)
		<-time.After(20 * time.Millisecond)
	}
}

// awaitSnooze waits until a job has been snoozed.
func awaitSnooze(t testing.TB, client *river.Client[pgxTx], id int64) {
	t.Helper()
	redistest.Eventually(t, "the job is snoozed", func() bool {
		row, err := client.JobGet(t.Context(), id)
		return err == nil && snoozed(row)
	})
}

// snoozed reports whether a job has been snoozed.
func snoozed(row *rivertype.JobRow) bool { return strings.Contains(string(row.Metadata), `"snoozes"`) }
