// Jobs shows worker processes that share a table of jobs. The database decides by
// a conditional update to which worker a job belongs. A lease on each job is
// the filter before it: a worker asks the database only for jobs that nobody
// works on, and it learns from the lease that another worker has died. One lease
// is lost and one worker is killed.
//
//	go -C examples/jobs run .
//
// It uses the PostgreSQL at DATABASE_URL, or starts one of its own, or uses an
// embedded SQLite where there is none. It uses the Redis or Valkey at REDIS_URL,
// or an embedded server where that is not set. It exits with 1 if a job was not
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
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
	"github.com/leasehold-go/leasehold/mutex"
)

var program = demo.Program{
	Name:  "jobs",
	Limit: 50 * time.Second,
	Run:   run,
	Roles: map[string]demo.Role{"worker": worker},
}

func main() { program.Main() }

var workers = []string{"A", "B", "C"}

func run(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
	db, err := database.Connect(ctx, demo.RunName("jobs"))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return show(ctx, out, srv, db)
}

// show is the whole show on a database.
func show(ctx context.Context, out *demo.Output, srv *demo.Server, db *database.Database) ([]string, error) {
	out.Print("A table of %d jobs, and %d worker processes.", jobs, len(workers))
	db.Print(out.Print)
	out.Print("The leases are on %s.", srv.Label)
	out.Print("They last %v.\n", leaseTTL)

	s, err := newStage(ctx, out, srv, db)
	if err != nil {
		return nil, err
	}
	defer s.close()
	o, err := s.play(ctx)
	if err != nil {
		return nil, err
	}
	problems := o.verdict()
	if len(problems) == 0 {
		out.Print("\nEach of the %d jobs was finished exactly once.", jobs)
	}
	return problems, nil
}

const (
	jobs = 24
	// These two take long enough for a fault to be tried on them.
	jobThatLosesItsLease   = 9
	jobWhoseWorkerIsKilled = 15

	shortSteps = 3
	longSteps  = 40
)

const createTable = `CREATE TABLE jobs (
	id     BIGINT PRIMARY KEY,
	steps  BIGINT NOT NULL,
	state  TEXT NOT NULL,
	owner  TEXT NOT NULL,
	token  BIGINT NOT NULL)`

// The two conditional updates decide. A worker owns a job if its token is the one
// in the row: a later holder of the job's lease puts its own, higher token there,
// and then the earlier one's updates touch no row. A token claims a job once, hence <;
// the later update compares with = instead.
const (
	claimJob = `UPDATE jobs SET state = 'running', owner = $2, token = $3
    WHERE id = $1 AND state <> 'done' AND token < $3`
	finishJob = `UPDATE jobs SET state = 'done'
    WHERE id = $1 AND state = 'running' AND token = $2`
)

func openTable(ctx context.Context, db *sql.DB) error {
	if err := database.Exec(ctx, db, createTable); err != nil {
		return err
	}
	for id := 1; id <= jobs; id++ {
		steps := shortSteps
		if id == jobThatLosesItsLease || id == jobWhoseWorkerIsKilled {
			steps = longSteps
		}
		if _, err := db.ExecContext(ctx, `INSERT INTO jobs VALUES ($1, $2, 'ready', '', 0)`, id, steps); err != nil {
			return err
		}
	}
	return nil
}

type job struct{ id, steps int }

// openJobs is the jobs that are not done, also those that somebody works on: in
// the table a worker that has died looks like one that lives.
func openJobs(ctx context.Context, db *sql.DB) (open []job, err error) {
	rows, err := db.QueryContext(ctx, `SELECT id, steps FROM jobs WHERE state <> 'done' ORDER BY id`)
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

// claim reports whether the job is the worker's now.
func claim(ctx context.Context, db *sql.DB, id int, owner string, token uint64) (bool, error) {
	return touchesARow(db.ExecContext(ctx, claimJob, id, owner, int64(token)))
}

// finish reports whether the job was still the worker's, and is done now.
func finish(ctx context.Context, db *sql.DB, id int, token uint64) (bool, error) {
	return touchesARow(db.ExecContext(ctx, finishJob, id, int64(token)))
}

func touchesARow(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// leaseTTL bounds how long a dead worker's job waits. It is short because
// somebody is watching.
const leaseTTL = time.Second

// stepTakes is how long a step of a job takes.
const stepTakes = 50 * time.Millisecond

// What a worker reports. Number is the job.
const (
	busy     = "busy"     // another has the job's lease: the database is not asked
	refused  = "refused"  // the lease was had, and the claim touched no row
	claimed  = "claimed"  // Token
	stopped  = "stopped"  // the lease was lost in the middle; Item is the steps done
	finished = "finished" // by this worker: the update touched the row
	fenced   = "fenced"   // the work was done, and the update touched no row
)

// worker works on the jobs until none is left.
func worker(ctx context.Context, c *demo.Child) error {
	db, err := database.FromEnv()
	if err != nil {
		return err
	}
	defer db.Close()
	locks, err := mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: leaseTTL})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, locks)
	for ctx.Err() == nil {
		open, err := openJobs(ctx, db)
		if err != nil {
			return err
		}
		if len(open) == 0 {
			return nil
		}
		worked, err := workOnOne(ctx, c, db, locks, open)
		if err != nil {
			return err
		}
		if !worked {
			pause(ctx, 100*time.Millisecond) // others work on all of them
		}
	}
	return nil
}

// workOnOne works on the first job whose lease is free.
func workOnOne(ctx context.Context, c *demo.Child, db *sql.DB, locks *mutex.Mutex, open []job) (bool, error) {
	for _, j := range open {
		lock, err := locks.TryLock(ctx, strconv.Itoa(j.id))
		switch {
		case errors.Is(err, leasehold.ErrBusy):
			c.Report(demo.Event{Kind: busy, Number: j.id})
			continue
		case errors.Is(err, leasehold.ErrUnavailable):
			return false, nil // without Redis nothing is begun; later again
		case err != nil:
			return false, err
		}
		mine, err := claim(ctx, db, j.id, c.Name, lock.Token())
		if err == nil && mine {
			c.Report(demo.Event{Kind: claimed, Number: j.id, Token: lock.Token()})
			err = workOn(c, db, lock, j)
		} else if err == nil {
			c.Report(demo.Event{Kind: refused, Number: j.id})
		}
		if unlock := lock.Unlock(); unlock != nil && !errors.Is(unlock, leasehold.ErrLost) {
			err = errors.Join(err, unlock)
		}
		if err != nil {
			return false, fmt.Errorf("job %d: %w", j.id, err)
		}
		if mine {
			return true, nil
		}
	}
	return false, nil
}

// workOn does the steps of a job, under the lease's Context: it stops when the
// lease is lost.
func workOn(c *demo.Child, db *sql.DB, lock *mutex.Lock, j job) error {
	ctx := lock.Context()
	for step := range j.steps {
		if !pause(ctx, stepTakes) { // stands for the work
			c.Report(demo.Event{Kind: stopped, Number: j.id, Item: step})
			return nil
		}
	}
	// The lease may be lost from here on, too: the condition decides.
	done, err := finish(context.WithoutCancel(ctx), db, j.id, lock.Token())
	if err != nil {
		return err
	}
	e := demo.Event{Kind: finished, Number: j.id}
	if !done {
		e.Kind = fenced
	}
	c.Report(e)
	return nil
}

// pause reports false where ctx ends before d has passed.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

type stage struct {
	out       *demo.Output
	run       string
	rdb       *redis.Client
	db        *sql.DB
	fleet     *demo.Fleet
	processes map[string]*demo.Process
}

func newStage(ctx context.Context, out *demo.Output, srv *demo.Server, d *database.Database) (s *stage, err error) {
	s = &stage{out: out, run: demo.RunName("jobs"), processes: map[string]*demo.Process{}}
	s.fleet = demo.NewFleet(srv, s.run)
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.rdb, err = demo.Client(srv.URL); err != nil {
		return nil, err
	}
	if s.db, err = database.Open(d.URL); err != nil {
		return nil, err
	}
	if err = openTable(ctx, s.db); err != nil {
		return nil, err
	}
	for _, name := range workers {
		s.processes[name], err = s.fleet.Start(demo.Spec{Name: name, Role: "worker", Env: d.Env()})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *stage) close() {
	s.fleet.Close()
	if s.db != nil {
		_ = s.db.Close()
	}
	if s.rdb != nil {
		_ = s.rdb.Close()
	}
}

// outcome is what became of the jobs.
type outcome struct {
	events      []demo.Event
	undone      int // by the table
	lost        demo.Event
	lostAt      time.Time // when the lease was deleted
	killed      demo.Event
	killedAt    time.Time
	killedHeir  demo.Event // the next claim of the killed worker's job
	stoppedLate demo.Event // the report of the worker that lost its lease
}

// play tries the two faults, one after the other, while the workers work.
func (s *stage) play(ctx context.Context) (o outcome, err error) {
	if o.lost, err = s.awaitClaim(ctx, jobThatLosesItsLease, -1); err != nil {
		return o, err
	}
	time.Sleep(4 * stepTakes)
	// As after a failover to a replica that had not got it: the lease is gone,
	// and its holder does not know yet.
	o.lostAt = time.Now()
	key := fmt.Sprintf("leasehold:mtx:{%s:%d}:holders", s.run, jobThatLosesItsLease)
	if err := s.rdb.Del(ctx, key).Err(); err != nil {
		return o, err
	}
	s.out.Say("%s works on job %d. Its lease is deleted in Redis.", o.lost.From, jobThatLosesItsLease)
	o.stoppedLate, err = s.fleet.Await(ctx, "the end of the work without a lease", func(e demo.Event) bool {
		return e.From == o.lost.From && e.Number == jobThatLosesItsLease && (e.Kind == stopped || e.Kind == fenced)
	})
	if err != nil {
		return o, err
	}
	s.out.Say("%s is told, and stops after %d of %d steps.", o.lost.From, o.stoppedLate.Item, longSteps)

	if o.killed, err = s.awaitClaim(ctx, jobWhoseWorkerIsKilled, -1); err != nil {
		return o, err
	}
	time.Sleep(4 * stepTakes)
	s.processes[o.killed.From].Kill()
	o.killedAt = time.Now()
	s.out.Say("%s works on job %d, and is killed.", o.killed.From, jobWhoseWorkerIsKilled)
	if o.killedHeir, err = s.awaitClaim(ctx, jobWhoseWorkerIsKilled, o.killed.Index); err != nil {
		return o, err
	}
	s.out.Say("%s has claimed job %d, %.1f s after the kill.", o.killedHeir.From, jobWhoseWorkerIsKilled,
		o.killedHeir.At.Sub(o.killedAt).Seconds())

	for _, name := range workers {
		if _, err := s.fleet.AwaitFrom(ctx, name, demo.Ended); err != nil {
			return o, err
		}
	}
	open, err := openJobs(ctx, s.db)
	o.undone, o.events = len(open), s.fleet.Events()
	return o, err
}

func (s *stage) awaitClaim(ctx context.Context, job, after int) (demo.Event, error) {
	return s.fleet.Await(ctx, fmt.Sprintf("a claim of job %d", job), func(e demo.Event) bool {
		return e.Index > after && e.Kind == claimed && e.Number == job
	})
}

func (o outcome) count(kind, worker string) (n int) {
	for _, e := range o.events {
		if e.Kind == kind && (worker == "" || e.From == worker) {
			n++
		}
	}
	return n
}

func (o outcome) verdict() (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	finishes := map[int]int{}
	token := map[int]uint64{}
	for _, e := range o.events {
		switch e.Kind {
		case finished:
			finishes[e.Number]++
		case claimed:
			if e.Token <= token[e.Number] {
				bad("job %d was claimed with token %d after %d", e.Number, e.Token, token[e.Number])
			}
			token[e.Number] = e.Token
		}
	}
	for id := 1; id <= jobs; id++ {
		if finishes[id] != 1 {
			bad("job %d was finished %d times", id, finishes[id])
		}
	}
	if o.undone > 0 {
		bad("%d jobs are not done by the table", o.undone)
	}
	if o.count(busy, "") == 0 {
		bad("no lease ever kept a worker off a job, so the filter was not tried")
	}
	if o.stoppedLate.Kind != stopped || o.stoppedLate.Item >= longSteps {
		bad("%s lost its lease and did all %d steps", o.lost.From, longSteps)
	} else if late := o.stoppedLate.At.Sub(o.lostAt); late > 2*leaseTTL {
		bad("%s was told only after %v that its lease was lost", o.lost.From, late)
	}
	if o.killedHeir.Kind != claimed || o.killedHeir.From == o.killed.From {
		bad("nobody took over the killed worker's job")
	}
	return problems
}
