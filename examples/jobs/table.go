package main

import (
	"context"
	"database/sql"

	"github.com/leasehold-go/leasehold/internal/database"
)

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
