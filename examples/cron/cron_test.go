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

func TestEachLetterIsSentOnce(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T, db *database.Database) {
		on := program
		on.Run = func(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
			return show(ctx, out, srv, db)
		}
		demotest.Check(t, on.Show)
	})
}

// A process that took over without having been told may try what another does.
func TestLetterIsSentOnceByTwoThatTry(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T, d *database.Database) {
		ctx := t.Context()
		db, err := database.Open(d.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := openTables(ctx, db); err != nil {
			t.Fatal(err)
		}
		const tries = 8
		news := make(chan bool, tries)
		for range tries {
			go func() {
				isNew, err := send(ctx, db, 1, 1, "A")
				if err != nil {
					t.Error(err)
				}
				news <- isNew
			}()
		}
		n := 0
		for range tries {
			if <-news {
				n++
			}
		}
		sent, err := lettersSent(ctx, db)
		if err != nil {
			t.Fatal(err)
		}
		if n != 1 || sent[[2]int{1, 1}] != 1 {
			t.Errorf("%d of %d that tried sent the letter, and %d are in the outbox; want 1", n, tries, sent[[2]int{1, 1}])
		}
	})
}

// good is a run without fault.
func good() outcome {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	o := outcome{
		sent: map[[2]int]int{}, killed: "B",
		killedAt: noon.Add(25 * time.Minute), backAt: noon.Add(35 * time.Minute),
	}
	for night := 1; night <= nights; night++ {
		for letter := 1; letter <= letters; letter++ {
			o.sent[[2]int{night, letter}] = 1
		}
	}
	for _, e := range []struct {
		minute int
		from   string
		kind   string
		night  int
	}{
		{10, "A", begins, 1},
		{11, "A", sent, 1},
		{12, "A", ready, 1},
		{20, "B", begins, 2},
		{21, "B", sent, 2},
		{25, "B", demo.Ended, 0},
		{30, "C", begins, 2},
		{31, "C", sent, 2},
		{32, "C", ready, 2},
		{40, "A", begins, 3},
		{41, "A", ready, 3},
	} {
		o.events = append(o.events, demo.Event{
			At: noon.Add(time.Duration(e.minute) * time.Minute), From: e.from, Kind: e.kind, Number: e.night,
		})
	}
	return o
}

// The verdict must find fault with each of these.
func TestVerdictFindsFault(t *testing.T) {
	if problems := good().verdict(); len(problems) > 0 {
		t.Fatalf("fault is found with a good run: %q", problems)
	}
	for want, spoil := range map[string]func(o *outcome){
		"letter 3 of night 2 was sent 2": func(o *outcome) { o.sent[[2]int{2, 3}] = 2 },
		"letter 4 of night 3 was sent 0": func(o *outcome) { delete(o.sent, [2]int{3, 4}) },
		"ran the job at once":            func(o *outcome) { o.events[5].At = o.events[7].At },
		"while Redis was away":           func(o *outcome) { o.backAt = o.backAt.Add(time.Hour) },
		"nobody took over":               func(o *outcome) { o.killed = "C" },
	} {
		o := good()
		spoil(&o)
		if problems := strings.Join(o.verdict(), "\n"); !strings.Contains(problems, want) {
			t.Errorf("no word of %q in %q", want, problems)
		}
	}
}
