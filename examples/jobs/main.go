// Jobs shows worker processes that share a table of jobs. The database decides by a
// conditional update to which worker a job belongs. A lease on each job is the filter before
// it: a worker asks the database only for jobs that nobody works on, and a free lease tells it
// that another worker has died. One lease is lost and one worker is killed.
//
//	go -C examples/jobs run .
//
// It uses the PostgreSQL at DATABASE_URL, or starts one, or uses an embedded SQLite. It uses
// the Redis or Valkey at REDIS_URL, or an embedded server. It exits with 1 if a job was not
// finished exactly once, and also if the faults could not be tried.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
	"github.com/leasehold-go/leasehold/mutex"
)

func main() { demo.Main(run, map[string]demo.Role{"worker": worker}) }

const (
	jobs = 24
	// These two take long enough for a fault to be tried on them.
	jobThatLosesItsLease   = 9
	jobWhoseWorkerIsKilled = 15
	shortSteps, longSteps  = 3, 40

	leaseTTL  = time.Second // how long a dead worker's job waits; short, since somebody is watching
	stepTakes = 50 * time.Millisecond
)

// The two conditional updates decide. A worker owns a job if its token is the one in the
// row: a later holder of the job's lease puts its own, higher token there, and then the earlier
// one's updates touch no row. A token claims a job once, hence <; the later update compares
// with = instead.
const (
	createTable = `CREATE TABLE jobs (id BIGINT PRIMARY KEY, steps BIGINT NOT NULL, done BIGINT NOT NULL, owner TEXT NOT NULL, token BIGINT NOT NULL)`
	insertJob   = `INSERT INTO jobs VALUES ($1, $2, 0, '', 0)`
	claimJob    = `UPDATE jobs SET owner = $2, token = $3 WHERE id = $1 AND done = 0 AND token < $3`
	finishJob   = `UPDATE jobs SET done = 1 WHERE id = $1 AND done = 0 AND token = $2`
)

// touches reports whether a statement touched a row: that the job is the worker's, or was.
func touches(ctx context.Context, db *sql.DB, statement string, args ...any) (bool, error) {
	result, err := db.ExecContext(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

type job struct{ id, steps int }

// openJobs is the jobs that are not done, also those that somebody works on: in the table
// a worker that has died looks like one that lives.
func openJobs(ctx context.Context, db *sql.DB) (open []job, err error) {
	rows, err := db.QueryContext(ctx, `SELECT id, steps FROM jobs WHERE done = 0 ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var j job
		if err := rows.Scan(&j.id, &j.steps); err != nil {
			return nil, err
		}
		open = append(open, j)
	}
	return open, rows.Err()
}

// What a worker reports. Number is the job.
const (
	busy     = "busy"     // another has the job's lease: the database is not asked
	claimed  = "claimed"  // Token
	stopped  = "stopped"  // the lease was lost in the middle; Item is the steps done
	finished = "finished" // the update touched the row
	fenced   = "fenced"   // the work was done, and the update touched no row
)

// worker works on the jobs until none is left.
func worker(ctx context.Context, c *demo.Child) error {
	db := demo.Must(database.FromEnv())
	defer db.Close()
	locks := demo.Must(mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: leaseTTL}))
	defer demo.Close(ctx, locks)
	for ctx.Err() == nil {
		open, err := openJobs(ctx, db)
		if err != nil || len(open) == 0 {
			return err
		}
		worked := false
		for _, j := range open {
			err := locks.TryDo(ctx, strconv.Itoa(j.id), func(ctx context.Context, token uint64) (err error) {
				worked, err = workOn(ctx, c, db, j, token)
				return err
			})
			switch {
			case errors.Is(err, leasehold.ErrBusy):
				c.Report(demo.Event{Kind: busy, Number: j.id})
			case err != nil && !errors.Is(err, leasehold.ErrLost) && !errors.Is(err, leasehold.ErrUnavailable):
				return fmt.Errorf("job %d: %w", j.id, err)
			}
			if worked {
				break // look at the table again
			}
		}
		if !worked {
			time.Sleep(100 * time.Millisecond) // others work on all of them, or Redis is away
		}
	}
	return nil
}

// workOn does the steps of a job, if the database says that it is this worker's. It stops
// when ctx ends, that is, when the lease is lost.
func workOn(ctx context.Context, c *demo.Child, db *sql.DB, j job, token uint64) (mine bool, err error) {
	if mine, err = touches(ctx, db, claimJob, j.id, c.Name, int64(token)); err != nil || !mine {
		return mine, err
	}
	c.Report(demo.Event{Kind: claimed, Number: j.id, Token: token})
	for step := range j.steps {
		select {
		case <-time.After(stepTakes): // stands for the work
		case <-ctx.Done():
			c.Report(demo.Event{Kind: stopped, Number: j.id, Item: step})
			return true, nil
		}
	}
	// The lease may be lost from here on, too: the condition decides.
	done, err := touches(context.WithoutCancel(ctx), db, finishJob, j.id, int64(token))
	if err == nil {
		c.Report(demo.Event{Kind: map[bool]string{true: finished, false: fenced}[done], Number: j.id})
	}
	return true, err
}

func run(s *demo.Show) (problems demo.Problems) {
	d, db := s.Database(createTable)
	for id := 1; id <= jobs; id++ {
		steps := shortSteps
		if id == jobThatLosesItsLease || id == jobWhoseWorkerIsKilled {
			steps = longSteps
		}
		demo.Must(db.ExecContext(s.Ctx, insertJob, id, steps))
	}
	fleet := s.Fleet()
	workers := map[string]*demo.Process{}
	for _, who := range []string{"A", "B", "C"} {
		workers[who] = fleet.Start(who, "worker")
	}
	s.Print("A table of %d jobs, and %d worker processes.", jobs, len(workers))
	d.Print(s.Print)
	s.Print("The leases are on %s.", s.Server)
	s.Print("They last %v.\n", leaseTTL)

	loser := fleet.Await(demo.Event{Kind: claimed, Number: jobThatLosesItsLease})
	time.Sleep(4 * stepTakes)
	// As after a failover to a replica that had not got it: the lease is gone, and its
	// holder does not know yet.
	lostAt := time.Now()
	demo.Check(s.Redis.Del(s.Ctx, fmt.Sprintf("leasehold:mtx:{%s:%d}:holders", fleet.Run, jobThatLosesItsLease)).Err())
	s.Say("%s works on job %d. Its lease is deleted in Redis.", loser.From, jobThatLosesItsLease)
	stop := fleet.Await(demo.Event{From: loser.From, Number: jobThatLosesItsLease, Index: loser.Index + 1})
	s.Say("%s is told, and stops after %d of %d steps.", loser.From, stop.Item, longSteps)
	problems.If(stop.Kind != stopped, "%s lost its lease and did all %d steps", loser.From, longSteps)
	problems.If(stop.At.Sub(lostAt) > 2*leaseTTL, "%s was told only after %v that its lease was lost", loser.From, stop.At.Sub(lostAt))

	killed := fleet.Await(demo.Event{Kind: claimed, Number: jobWhoseWorkerIsKilled})
	time.Sleep(4 * stepTakes)
	workers[killed.From].Kill()
	killedAt := time.Now()
	s.Say("%s works on job %d, and is killed.", killed.From, jobWhoseWorkerIsKilled)
	heir := fleet.Await(demo.Event{Kind: claimed, Number: jobWhoseWorkerIsKilled, Index: killed.Index + 1})
	s.Say("%s has claimed job %d, %.1f s after the kill.", heir.From, jobWhoseWorkerIsKilled, heir.At.Sub(killedAt).Seconds())
	problems.If(heir.From == killed.From, "nobody took over the killed worker's job")
	for who := range workers {
		fleet.Await(demo.Event{From: who, Kind: demo.Ended})
	}
	undone := len(demo.Must(openJobs(s.Ctx, db)))
	problems.If(undone > 0, "%d jobs are not done by the table", undone)
	problems = append(problems, verdict(fleet.Events())...)
	if len(problems) == 0 {
		s.Print("\nEach of the %d jobs was finished exactly once.", jobs)
	}
	return problems
}

// verdict judges what the workers reported.
func verdict(events []demo.Event) (problems demo.Problems) {
	finishes, token, waited := map[int]int{}, map[int]uint64{}, false
	for _, e := range events {
		switch e.Kind {
		case busy:
			waited = true
		case finished:
			finishes[e.Number]++
		case claimed:
			problems.If(e.Token <= token[e.Number], "job %d was claimed with token %d after %d", e.Number, e.Token, token[e.Number])
			token[e.Number] = e.Token
		}
	}
	for id := 1; id <= jobs; id++ {
		problems.If(finishes[id] != 1, "job %d was finished %d times", id, finishes[id])
	}
	problems.If(!waited, "no lease ever kept a worker off a job, so the filter was not tried")
	return problems
}
