package main

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/examples/internal/demotest"
	"github.com/leasehold-go/leasehold/internal/database"
)

func TestMain(m *testing.M) { demotest.Main(m, program) }

func TestEachJobIsFinishedOnce(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T) { demotest.Check(t, program) })
}

// The database decides even where the lease has let two workers through.
func TestLaterTokenOwnsTheJob(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T) {
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

func TestVerdictFindsFault(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	demotest.FindsFault(t, verdict, func() *outcome {
		o := &outcome{
			lostBy: demo.Event{From: "A"}, lostAt: now, stopped: demo.Event{From: "A", Kind: stopped, Item: 5, At: now.Add(time.Second)},
			killed: demo.Event{From: "B"}, heir: demo.Event{From: "C"}, events: []demo.Event{{Kind: busy}},
		}
		for id := 1; id <= jobs; id++ {
			o.events = append(o.events, demo.Event{Kind: claimed, Number: id, Token: uint64(id)}, demo.Event{Kind: finished, Number: id})
		}
		return o
	}, map[string]func(*outcome){
		"finished 2 times": func(o *outcome) { o.events = append(o.events, demo.Event{Kind: finished, Number: 3}) },
		"finished 0 times": func(o *outcome) { o.events = o.events[:len(o.events)-1] },
		"not done":         func(o *outcome) { o.undone = 1 },
		"not tried":        func(o *outcome) { o.events = o.events[1:] },
		"with token":       func(o *outcome) { o.events = append(o.events, demo.Event{Kind: claimed, Number: 3, Token: 3}) },
		"did all":          func(o *outcome) { o.stopped.Kind = fenced },
		"told only after":  func(o *outcome) { o.stopped.At = now.Add(3 * leaseTTL) },
		"nobody took over": func(o *outcome) { o.heir.From = "B" },
	})
}
