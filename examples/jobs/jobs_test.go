package main

import (
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
	"github.com/leasehold-go/leasehold/internal/database"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

func TestEachJobIsFinishedOnce(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T, redis string) { demotest.Check(t, "", redis) })
}

// The database decides even where the lease has let two workers through.
func TestLaterTokenOwnsTheJob(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T, _ string) {
		d, db, err := database.Make(t.Context(), "jobs-test", createTable, `INSERT INTO jobs VALUES (1, 3, 0, '', 0)`)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		defer db.Close()
		for _, s := range []struct {
			what, statement string
			args            []any
			want            bool
		}{
			{"A claims with 5", claimJob, []any{1, "A", 5}, true},
			{"B claims with 7", claimJob, []any{1, "B", 7}, true},
			{"A claims again with 5", claimJob, []any{1, "A", 5}, false},
			{"A finishes with 5", finishJob, []any{1, 5}, false},
			{"B finishes with 7", finishJob, []any{1, 7}, true},
			{"B finishes again", finishJob, []any{1, 7}, false},
			{"C claims the finished job with 9", claimJob, []any{1, "C", 9}, false},
		} {
			if got, err := touches(t.Context(), db, s.statement, s.args...); err != nil || got != s.want {
				t.Errorf("%s: %v, %v; want %v", s.what, got, err, s.want)
			}
		}
	})
}
