package main

import (
	"context"
	"database/sql"

	"github.com/leasehold-go/leasehold/internal/database"
)

// The account, and what the two processes do to it.
const (
	account    = "acme"
	opening    = 100
	depositOfA = 30
	depositOfB = 50
)

const createTable = `CREATE TABLE account (
	id         TEXT PRIMARY KEY,
	balance    BIGINT NOT NULL,
	last_token BIGINT NOT NULL)`

// The fenced statement checks and writes in one step: no other write can come
// between. A token is accepted once; a holder that writes several times would
// compare with <= instead.
const (
	plainUpdate = `UPDATE account SET balance = $1
    WHERE id = $2`
	fencedUpdate = `UPDATE account SET balance = $1, last_token = $3
    WHERE id = $2 AND last_token < $3`
)

// openAccount makes the table anew, with the opening balance.
func openAccount(ctx context.Context, db *sql.DB) error {
	if err := database.Exec(ctx, db, `DROP TABLE IF EXISTS account`, createTable); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, `INSERT INTO account VALUES ($1, $2, 0)`, account, opening)
	return err
}

func readBalance(ctx context.Context, db *sql.DB) (balance int, err error) {
	err = db.QueryRowContext(ctx, `SELECT balance FROM account WHERE id = $1`, account).Scan(&balance)
	return balance, err
}

// writeBalance returns how many rows it touched. 0 says that a holder with a
// later token has written.
func writeBalance(ctx context.Context, db *sql.DB, balance int, token uint64, fenced bool) (int64, error) {
	statement, args := plainUpdate, []any{balance, account}
	if fenced {
		statement, args = fencedUpdate, append(args, int64(token))
	}
	result, err := db.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
