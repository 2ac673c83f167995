// Package database finds the SQL database of an example or a test: a PostgreSQL that runs,
// one that it starts, or an embedded SQLite.
//
// It imports no driver. A program that uses it imports
// github.com/jackc/pgx/v5/stdlib and modernc.org/sqlite.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Database is the database that all processes of a run share.
type Database struct {
	URL   string // for Open; never printed: it may hold a password
	Label string
	Note  string // why it is not PostgreSQL, where it is not
	close func()
}

// Connect finds the PostgreSQL of DATABASE_URL; else it starts one from what is
// installed on this machine, or what scripts/postgres.sh has unpacked; else it
// makes an SQLite database. run names the schema that it uses in a PostgreSQL
// that was running already.
func Connect(ctx context.Context, run string) (*Database, error) {
	if address := os.Getenv("DATABASE_URL"); address != "" {
		return existing(ctx, address, run)
	}
	db, err := StartPostgres(ctx)
	if err == nil {
		return db, nil
	}
	lite, failed := SQLite()
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	lite.Note = err.Error()
	return lite, nil
}

// Print tells on which database a run is, and why.
func (d *Database) Print(print func(format string, args ...any)) {
	print("The database is %s.", d.Label)
	if d.Note != "" {
		print("(%s)", d.Note)
	}
}

// Make is Connect, a connection pool of that database, and these statements run there. Child processes find it [FromEnv].
func Make(ctx context.Context, run string, statements ...string) (*Database, *sql.DB, error) {
	d, err := Connect(ctx, run)
	if err != nil {
		return nil, nil, err
	}
	db, err := Open(d.URL)
	err = errors.Join(err, os.Setenv(envURL, d.URL))
	for _, statement := range statements {
		if err == nil {
			_, err = db.ExecContext(ctx, statement)
		}
	}
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	return d, db, nil
}

// Close stops the database where Connect started it, and drops what it made.
func (d *Database) Close() { d.close() }

// Open opens the database at the URL of a [Database].
func Open(address string) (*sql.DB, error) {
	driver := "sqlite"
	if strings.HasPrefix(address, "postgres") {
		driver = "pgx"
	}
	return sql.Open(driver, address)
}

// envURL carries the URL to the processes of a run.
const envURL = "LEASEHOLD_EXAMPLE_DATABASE"

// FromEnv opens the database of the run, in a child process.
func FromEnv() (*sql.DB, error) { return Open(os.Getenv(envURL)) }

// SQLite makes an empty database in a file, which several processes can use.
func SQLite() (*Database, error) {
	dir, err := os.MkdirTemp("", "leasehold-")
	if err != nil {
		return nil, err
	}
	return &Database{
		// A process waits for another's transaction. Each begins as a writer, so
		// that none fails in the middle because another wrote first.
		URL: "file:" + filepath.ToSlash(filepath.Join(dir, "example.db")) +
			"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)",
		Label: "SQLite, embedded",
		close: func() { _ = os.RemoveAll(dir) },
	}, nil
}

// existing uses a schema of its own in a PostgreSQL that somebody else runs.
func existing(ctx context.Context, address, run string) (*Database, error) {
	// The parser's error would quote the URL, password included.
	where, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(where.Scheme, "postgres") {
		return nil, errors.New("DATABASE_URL is no PostgreSQL URL; want postgres://user:password@host/database")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	db, err := Open(address)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	schema := strings.ReplaceAll(run, "-", "_")
	if _, err := db.ExecContext(ctx, "CREATE SCHEMA "+schema); err != nil {
		return nil, fmt.Errorf("the PostgreSQL of DATABASE_URL, %s: %w", where.Host, err)
	}
	query := where.Query()
	query.Set("search_path", schema)
	where.RawQuery = query.Encode()
	return &Database{
		URL:   where.String(),
		Label: strings.TrimSuffix(version(ctx, db)+" at "+where.Host, " at "), // "": by a socket
		close: func() {
			if db, err := Open(address); err == nil {
				_, _ = db.Exec("DROP SCHEMA " + schema + " CASCADE") // else it stays, and is in nobody's way
				_ = db.Close()
			}
		},
	}, nil
}

// version is "PostgreSQL 15.14", say.
func version(ctx context.Context, db *sql.DB) string {
	var v string
	if err := db.QueryRowContext(ctx, "SHOW server_version").Scan(&v); err != nil {
		return "PostgreSQL"
	}
	v, _, _ = strings.Cut(v, " ")
	return "PostgreSQL " + v
}
