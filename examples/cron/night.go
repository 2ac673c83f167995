package main

import (
	"context"
	"database/sql"

	"github.com/leasehold-go/leasehold/internal/database"
)

const (
	nights  = 3
	letters = 12 // of a night
)

// The database records the letters of a night that were sent, so a process that takes over
// sends the rest. The slot in Redis records that the night is done.
//
// The outbox stands for what a letter does. It has no key that would hide a
// letter that is sent twice.
var createTables = []string{
	`CREATE TABLE done (night BIGINT, letter BIGINT, PRIMARY KEY (night, letter))`,
	`CREATE TABLE outbox (night BIGINT, letter BIGINT, sent_by TEXT NOT NULL)`,
}

const (
	markLetter = `INSERT INTO done VALUES ($1, $2) ON CONFLICT DO NOTHING`
	sendLetter = `INSERT INTO outbox VALUES ($1, $2, $3)`
)

func openTables(ctx context.Context, db *sql.DB) error {
	return database.Exec(ctx, db, createTables...)
}

// send sends a letter, unless that was done before, and reports whether it did.
// The mark and the effect are one transaction: a process that dies in the middle
// leaves neither, and of two that try at once one finds the mark. An effect
// outside the database (a mail) can only be sent with a key by which its receiver
// drops the second one.
func send(ctx context.Context, db *sql.DB, night, letter int, sender string) (sent bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // does nothing after Commit
	marked, err := tx.ExecContext(ctx, markLetter, night, letter)
	if err != nil {
		return false, err
	}
	if n, err := marked.RowsAffected(); err != nil || n == 0 {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, sendLetter, night, letter, sender); err != nil {
		return false, err
	}
	return true, tx.Commit()
}

// lettersSent counts what is in the outbox, by night and letter.
func lettersSent(ctx context.Context, db *sql.DB) (map[[2]int]int, error) {
	rows, err := db.QueryContext(ctx, `SELECT night, letter FROM outbox`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	sent := map[[2]int]int{}
	for rows.Next() {
		var night, letter int
		if err := rows.Scan(&night, &letter); err != nil {
			return nil, err
		}
		sent[[2]int{night, letter}]++
	}
	return sent, rows.Err()
}
