package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/examples/internal/demotest"
	"github.com/leasehold-go/leasehold/internal/database"
)

func TestMain(m *testing.M) {
	program.RunIfChild()
	os.Exit(m.Run())
}

func TestEachJobIsFinishedOnce(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T, db *database.Database) {
		on := program
		on.Run = func(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
			return show(ctx, out, srv, db)
		}
		demotest.Check(t, on.Show)
	})
}

// The database decides even where the lease has let two workers through.
func TestLaterTokenOwnsTheJob(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T, d *database.Database) {
		ctx := t.Context()
		db, err := database.Open(d.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := openTable(ctx, db); err != nil {
			t.Fatal(err)
		}
		for _, s := range []struct {
			what string
			do   func() (bool, error)
			want bool
		}{
			{"A claims with 5", func() (bool, error) { return claim(ctx, db, 1, "A", 5) }, true},
			{"B claims with 7", func() (bool, error) { return claim(ctx, db, 1, "B", 7) }, true},
			{"A claims again with 5", func() (bool, error) { return claim(ctx, db, 1, "A", 5) }, false},
			{"A finishes with 5", func() (bool, error) { return finish(ctx, db, 1, 5) }, false},
			{"B finishes with 7", func() (bool, error) { return finish(ctx, db, 1, 7) }, true},
			{"B finishes again", func() (bool, error) { return finish(ctx, db, 1, 7) }, false},
			{"C claims the finished job with 9", func() (bool, error) { return claim(ctx, db, 1, "C", 9) }, false},
		} {
			if got, err := s.do(); err != nil || got != s.want {
				t.Errorf("%s: %v, %v; want %v", s.what, got, err, s.want)
			}
		}
	})
}

// good is a run without fault.
func good() outcome {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	o := outcome{
		lost: demo.Event{From: "A"}, lostAt: now,
		stoppedLate: demo.Event{From: "A", Kind: stopped, Item: 5, At: now.Add(time.Second)},
		killed:      demo.Event{From: "B"},
		killedHeir:  demo.Event{From: "C", Kind: claimed},
	}
	o.events = append(o.events, demo.Event{Kind: busy})
	for id := 1; id <= jobs; id++ {
		o.events = append(o.events,
			demo.Event{Kind: claimed, Number: id, Token: uint64(id)}, demo.Event{Kind: finished, Number: id})
	}
	return o
}

// The verdict must find fault with each of these.
func TestVerdictFindsFault(t *testing.T) {
	if problems := good().verdict(); len(problems) > 0 {
		t.Fatalf("fault is found with a good run: %q", problems)
	}
	for want, spoil := range map[string]func(o *outcome){
		"finished 2 times": func(o *outcome) { o.events = append(o.events, demo.Event{Kind: finished, Number: 3}) },
		"finished 0 times": func(o *outcome) { o.events = o.events[:len(o.events)-1] },
		"not done":         func(o *outcome) { o.undone = 1 },
		"not tried":        func(o *outcome) { o.events = o.events[1:] },
		"with token":       func(o *outcome) { o.events = append(o.events, demo.Event{Kind: claimed, Number: 3, Token: 3}) },
		"did all":          func(o *outcome) { o.stoppedLate.Kind = fenced },
		"told only after":  func(o *outcome) { o.stoppedLate.At = o.lostAt.Add(3 * leaseTTL) },
		"nobody took over": func(o *outcome) { o.killedHeir.From = "B" },
	} {
		o := good()
		spoil(&o)
		if problems := strings.Join(o.verdict(), "\n"); !strings.Contains(problems, want) {
			t.Errorf("no word of %q in %q", want, problems)
		}
	}
}
