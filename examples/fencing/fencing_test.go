package main

import (
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
	demotest.OnEachDatabase(t, func(t *testing.T) { demotest.Check(t, program.Show) })
}

// Without the condition the same story ends in a fault that the verdict sees.
func TestStaleWriteWithoutTheConditionIsAFault(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T) {
		srv, err := demo.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		d, db, err := database.Make(t.Context(), "fencing-test")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		defer db.Close()
		plain, err := round(t.Context(), demo.NewOutput(io.Discard), srv, d, db, "plain")
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

// The verdict must find fault with each of these, and none with the first.
func TestVerdictFindsFault(t *testing.T) {
	for want, change := range map[string]func(plain, fenced *outcome){
		"":                               func(_, _ *outcome) {},
		"token 3 after 4, was accepted":  func(_, f *outcome) { f.stale = accepted },
		"the balance was 130":            func(_, f *outcome) { f.afterStale = 130 },
		"at the end the balance is 150":  func(_, f *outcome) { f.balance = 150 },
		"token 2 is not above A's 3":     func(_, f *outcome) { f.newToken = 2 },
		"token 3 is not above A's 3":     func(_, f *outcome) { f.newToken = f.oldToken },
		"A was not told":                 func(p, _ *outcome) { p.told = "held to the end" },
		"did no harm (accepted, balance": func(p, _ *outcome) { p.balance = 180 },
		"did no harm (refused, balance":  func(p, _ *outcome) { p.stale = refused },
	} {
		p := outcome{oldToken: 1, newToken: 2, stale: accepted, told: lost, afterStale: 130, balance: 130}
		f := outcome{oldToken: 3, newToken: 4, stale: refused, told: lost, afterStale: 150, balance: 180}
		change(&p, &f)
		if problems := strings.Join(verdict(p, f), "\n"); !strings.Contains(problems, want) || want == "" && problems != "" {
			t.Errorf("no word of %q in %q", want, problems)
		}
	}
}
