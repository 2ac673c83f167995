// Package demotest runs an example as a test.
package demotest

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

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

// Check fails the test where show finds a problem, and where it prints a line
// wider than a terminal of 80 columns. It returns what show prints.
func Check(t testing.TB, show func(ctx context.Context, w io.Writer) (problems []string, err error)) string {
	t.Helper()
	var text strings.Builder
	problems, err := show(t.Context(), &text)
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
	return text.String()
}
