package main

import (
	"io"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/examples/internal/demotest"
	"github.com/leasehold-go/leasehold/internal/database"
)

func TestMain(m *testing.M) { demotest.Main(m, program) }

// Real processes, one of them stopped past its TTL, on both databases.
func TestStaleOwnerTouchesNoRow(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T) { demotest.Check(t, program) })
}

// Without the condition the same story ends in a fault that the verdict sees.
func TestStaleWriteWithoutTheConditionIsAFault(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T) {
		unfenced := program
		unfenced.Run = func(s *demo.Show) demo.Problems {
			d, db := s.Database()
			plain := round(s, d, db, "plain")
			return verdict(&outcomes{plain, plain})
		}
		found, err := unfenced.Show(t.Context(), io.Discard)
		problems := strings.Join(found, "\n")
		for _, want := range []string{"was accepted", "after the stale write the balance was 130"} {
			if err != nil || !strings.Contains(problems, want) {
				t.Errorf("%v, and no word of %q in %q", err, want, problems)
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

func TestVerdictFindsFault(t *testing.T) {
	demotest.FindsFault(t, verdict, func() *outcomes {
		return &outcomes{
			plain:  outcome{oldToken: 1, newToken: 2, stale: accepted, told: lost, afterStale: 130, balance: 130},
			fenced: outcome{oldToken: 3, newToken: 4, stale: refused, told: lost, afterStale: 150, balance: 180},
		}
	}, map[string]func(*outcomes){
		"token 3 after 4, was accepted":  func(o *outcomes) { o.fenced.stale = accepted },
		"the balance was 130":            func(o *outcomes) { o.fenced.afterStale = 130 },
		"at the end the balance is 150":  func(o *outcomes) { o.fenced.balance = 150 },
		"token 2 is not above A's 3":     func(o *outcomes) { o.fenced.newToken = 2 },
		"token 3 is not above A's 3":     func(o *outcomes) { o.fenced.newToken = 3 },
		"A was not told":                 func(o *outcomes) { o.plain.told = "held to the end" },
		"did no harm (accepted, balance": func(o *outcomes) { o.plain.balance = 180 },
		"did no harm (refused, balance":  func(o *outcomes) { o.plain.stale = refused },
	})
}
