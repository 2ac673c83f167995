package main

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/guide"
)

// A write with an older token touches no row.
func TestSaveStatusRefusesAnOlderToken(t *testing.T) {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file::memory:?cache=shared")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range []string{"CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT)", "ALTER TABLE orders ADD COLUMN last_token BIGINT NOT NULL DEFAULT 0", "INSERT INTO orders (id, status) VALUES ('7','new')"} {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		status string
		token  uint64
		fenced bool
	}{{"paid", 5, false}, {"packed", 5, false}, {"shipped", 9, false}, {"cancelled", 5, true}, {"done", 1<<53 - 1, false}, {"x", 10, true}} {
		err := guide.SaveStatus(ctx, db, "7", step.status, step.token)
		if errors.Is(err, leasehold.ErrFenced) != step.fenced || (err != nil && !step.fenced) {
			t.Errorf("%+v: %v", step, err)
		}
	}
	var s string
	if err := db.QueryRow("SELECT status FROM orders").Scan(&s); err != nil || s != "done" {
		t.Error(s, err)
	}
	if err := guide.SaveStatus(ctx, db, "8", "x", 99); !errors.Is(err, leasehold.ErrFenced) {
		t.Error(err)
	}
}
