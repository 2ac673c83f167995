package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
	"github.com/leasehold-go/leasehold/mutex"
)

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
