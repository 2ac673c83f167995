// Package demotest runs an example as a test.
package demotest

import (
	"errors"
	"os"
	"os/exec"
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

// Slow skips a test that takes seconds, except where make test runs it.
func Slow(t *testing.T) {
	if os.Getenv("LEASEHOLD_REQUIRE_SERVERS") == "" {
		t.Skip("it takes seconds: make test runs it")
	}
}

// asExample, set, makes the test's binary the example.
const asExample = "LEASEHOLD_EXAMPLE_TEST"

// Main is an example's TestMain.
func Main(m *testing.M, main func()) {
	if os.Getenv(asExample) == "" {
		os.Exit(m.Run())
	}
	main()
}

// Run runs the example as a user does, and returns what it prints, and says of problems. err is that of its exit code.
func Run(t *testing.T, args ...string) (text, problems string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asExample+"=1")
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// Check runs the example on an embedded Redis. It fails the test where there is a problem, and
// where a line is wider than a terminal of 80 columns.
func Check(t *testing.T, args ...string) {
	t.Helper()
	t.Setenv("REDIS_URL", "")
	text, problems, err := Run(t, args...)
	t.Log("\n" + text)
	if err != nil || problems != "" {
		t.Errorf("%v: %s", err, problems)
	}
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("wider than 80 columns: %q", line)
		}
	}
}
