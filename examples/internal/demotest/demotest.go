// Package demotest runs an example as a test.
package demotest

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
)

// OnEachDatabase runs a test on a PostgreSQL and on SQLite, which database.Connect then
// finds. Without a PostgreSQL that half is skipped, or fails if LEASEHOLD_REQUIRE_POSTGRES is
// set.
func OnEachDatabase(t *testing.T, test func(t *testing.T)) {
	t.Run("postgres", func(t *testing.T) {
		db, err := database.StartPostgres(t.Context())
		if errors.Is(err, database.ErrNoPostgres) && os.Getenv("LEASEHOLD_REQUIRE_POSTGRES") == "" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		t.Setenv("DATABASE_URL", db.URL)
		test(t)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Setenv("DATABASE_URL", "")
		t.Setenv(database.EnvPostgres, t.TempDir())
		test(t)
	})
}

// Main is an example's TestMain.
func Main(m *testing.M, p demo.Program) {
	p.RunIfChild()
	os.Exit(m.Run())
}

// Check gives the show on an embedded Redis. It fails the test where there is a problem, and
// where a line is wider than a terminal of 80 columns.
func Check(t *testing.T, p demo.Program) {
	t.Helper()
	t.Setenv("REDIS_URL", "")
	var text strings.Builder
	problems, err := p.Show(t.Context(), &text)
	t.Log("\n" + text.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
	for line := range strings.Lines(text.String()) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("wider than 80 columns: %q", line)
		}
	}
}
