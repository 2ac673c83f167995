package main

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/examples/internal/demotest"
	"github.com/leasehold-go/leasehold/internal/database"
)

func TestMain(m *testing.M) {
	program.RunIfChild()
	os.Exit(m.Run())
}

// Real processes, one of them stopped past its TTL, on both databases.
func TestStaleOwnerTouchesNoRow(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T, db *database.Database) {
		on := program
		on.Run = func(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
			return show(ctx, out, srv, db)
		}
		demotest.Check(t, on.Show)
	})
}

// Without the condition the same story ends in a fault that the verdict sees.
func TestStaleWriteWithoutTheConditionIsAFault(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T, db *database.Database) {
		srv, err := demo.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		s := &stage{out: demo.NewOutput(io.Discard), srv: srv, database: db}
		plain, err := s.round(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		problems := strings.Join(verdict(plain, plain), "\n")
		for _, want := range []string{"was accepted", "after the stale write the balance was 130"} {
			if !strings.Contains(problems, want) {
				t.Errorf("no word of %q in %q", want, problems)
			}
		}
	})
}

func TestSQLiteIsUsedWhereThereIsNoPostgres(t *testing.T) {
	t.Setenv("DATABASE_URL", "")
	t.Setenv(database.EnvPostgres, t.TempDir())
	db, err := database.Connect(t.Context(), "run")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if !strings.HasPrefix(db.Label, "SQLite") || db.Note == "" {
		t.Errorf("got %q, note %q", db.Label, db.Note)
	}
}

// The verdict must find fault with each of these.
func TestVerdictFindsFault(t *testing.T) {
	plain := outcome{oldToken: 1, newToken: 2, stale: accepted, told: "lost", afterStale: 130, balance: 130}
	fenced := outcome{oldToken: 3, newToken: 4, stale: refused, told: "lost", afterStale: 150, balance: 180}
	if problems := verdict(plain, fenced); len(problems) > 0 {
		t.Fatalf("fault is found with a good run: %q", problems)
	}
	for name, change := range map[string]func(plain, fenced *outcome){
		"stale write accepted":     func(_, f *outcome) { f.stale = accepted },
		"B's deposit overwritten":  func(_, f *outcome) { f.afterStale = 130 },
		"a deposit missing":        func(_, f *outcome) { f.balance = 150 },
		"tokens fall":              func(_, f *outcome) { f.newToken = 2 },
		"A kept its lease":         func(p, _ *outcome) { p.told = "held to the end" },
		"no harm without a token":  func(p, _ *outcome) { p.balance = 180 },
		"refused without a token":  func(p, _ *outcome) { p.stale = refused },
		"the same token was given": func(_, f *outcome) { f.newToken = f.oldToken },
	} {
		p, f := plain, fenced
		change(&p, &f)
		if len(verdict(p, f)) == 0 {
			t.Errorf("%s: no fault is found", name)
		}
	}
}
