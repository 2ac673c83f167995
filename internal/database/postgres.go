package database

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ErrNoPostgres says that this machine has no PostgreSQL to start.
var ErrNoPostgres = errors.New("no PostgreSQL here; scripts/postgres.sh can fetch one")

// EnvPostgres names a folder to take initdb and postgres from, and no other.
// Where they are not there, an example uses SQLite.
const EnvPostgres = "LEASEHOLD_POSTGRES"

// binaries is the folder of initdb and postgres.
func binaries() (string, error) {
	if dir := os.Getenv(EnvPostgres); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
			return "", ErrNoPostgres
		}
		return dir, nil
	}
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// A link in PATH leads to the folder in which its neighbours are.
		if real, err := filepath.EvalSymlinks(initdb); err == nil {
			initdb = real
		}
		return filepath.Abs(filepath.Dir(initdb))
	}
	places := []string{"/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin"}
	// From the folder where the program was started upwards: that of the module.
	for dir, err := os.Getwd(); err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		places = append(places, filepath.Join(dir, ".postgres", "run"))
	}
	for _, place := range places {
		found, _ := filepath.Glob(filepath.Join(place, "initdb"))
		if len(found) > 0 {
			return filepath.Dir(found[len(found)-1]), nil
		}
	}
	return "", ErrNoPostgres
}

// supervise runs a server until its own stdin ends, which happens when the
// program that started it closes it, or dies.
const supervise = `"$@" </dev/null & server=$!
cat >/dev/null
kill -INT $server
wait $server`

// StartPostgres starts a PostgreSQL of its own in a temporary folder, reached by
// a Unix socket there. It needs no root, and as root it runs as another user,
// because PostgreSQL refuses to run as root.
func StartPostgres(ctx context.Context) (*Database, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	// A socket's path must be short.
	dir, err := os.MkdirTemp("", "leasehold-")
	if err != nil {
		return nil, err
	}
	discard := func() { _ = os.RemoveAll(dir) }
	db, err := start(ctx, bin, dir)
	if err != nil {
		discard()
		return nil, fmt.Errorf("PostgreSQL in %s: %w", bin, err)
	}
	stop := db.close
	db.close = func() { stop(); discard() }
	return db, nil
}

func start(ctx context.Context, bin, dir string) (*Database, error) {
	data := filepath.Join(dir, "data")
	// The data live for seconds: nothing has to survive a crash of the machine.
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data,
		"-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	server := exec.Command("sh", "-c", supervise, "postgres", filepath.Join(bin, "postgres"), "-D", data,
		"-k", dir, "-c", "listen_addresses=", "-F", "-c", "max_connections=50")
	for _, cmd := range []*exec.Cmd{initdb, server} {
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		if err := notAsRoot(cmd, dir); err != nil {
			return nil, err
		}
	}
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	stdin, err := server.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		_ = server.Wait()
		close(ended)
	}()
	stop := func() {
		_ = stdin.Close()
		<-ended
	}
	db := &Database{URL: "postgres://postgres@/postgres?host=" + dir, close: stop}
	if db.Label, err = db.awaitAnswer(ctx, ended); err != nil {
		stop()
		return nil, fmt.Errorf("%w\n%s", err, strings.TrimSpace(log.String()))
	}
	return db, nil
}

// awaitAnswer returns the server's version when it takes connections.
func (d *Database) awaitAnswer(ctx context.Context, ended <-chan struct{}) (string, error) {
	db, err := Open(d.URL)
	if err != nil {
		return "", err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return version(ctx, db) + ", started for this run", nil
		}
		select {
		case <-ended:
			return "", errors.New("the server ended")
		case <-ctx.Done():
			return "", err
		case <-time.After(20 * time.Millisecond): // it says nowhere that it is ready
		}
	}
}
