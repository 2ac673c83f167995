package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
)

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
