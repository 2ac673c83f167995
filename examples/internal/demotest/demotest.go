// Package demotest runs an example as a test.
package demotest

import (
	"cmp"
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
// set. The test gets the URL of a Redis: on PostgreSQL LEASEHOLD_EXAMPLES_REDIS, if it is set, and else "".
func OnEachDatabase(t *testing.T, test func(t *testing.T, redis string)) {
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
		test(t, os.Getenv("LEASEHOLD_EXAMPLES_REDIS"))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Setenv("DATABASE_URL", "")
		t.Setenv(database.EnvPostgres, t.TempDir())
		test(t, "")
	})
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

// Run runs program as a user does, with the Redis of a URL, and returns what it prints, and says of problems. err is
// that of its exit code. Without program it is the example of Main, and without a URL the Redis is an embedded one.
func Run(t *testing.T, program, redis string, args ...string) (text, problems string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cmp.Or(program, os.Args[0]), args...)
	cmd.Env = append(os.Environ(), asExample+"=1", "REDIS_URL="+redis)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// Check runs program, as Run does. It fails the test where there is a problem, and where a line
// is wider than a terminal of 80 columns.
func Check(t *testing.T, program, redis string, args ...string) {
	t.Helper()
	text, problems, err := Run(t, program, redis, args...)
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
