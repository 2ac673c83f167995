// Fencing shows a stale lock owner and a database, with and without the token
// that keeps it out. Process A takes the lock, reads an account's balance and is
// stopped (SIGSTOP) for longer than its lease lasts. Process B takes the lock and
// writes. Then A goes on, and writes what it had computed before.
//
//	go -C examples/fencing run .
//
// It uses the PostgreSQL at DATABASE_URL, or starts one of its own, or uses an
// embedded SQLite where there is none. It uses the Redis or Valkey at REDIS_URL,
// or an embedded server where that is not set. It exits with 1 if the stale write
// was accepted in spite of the token, and also if that could not be tried.
package main

import (
	"context"
	"errors"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
)

var program = demo.Program{
	Name:  "fencing",
	Limit: 50 * time.Second,
	Run:   run,
	Roles: map[string]demo.Role{"depositor": depositor},
}

func main() { program.Main() }

func run(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
	db, err := database.Connect(ctx, demo.RunName("fencing"))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return show(ctx, out, srv, db)
}

// show is the whole show on a database.
func show(ctx context.Context, out *demo.Output, srv *demo.Server, db *database.Database) ([]string, error) {
	if !demo.CanPause {
		return nil, errors.New("this system cannot stop a process so that it does not notice")
	}
	stage := &stage{out: out, srv: srv, database: db}

	out.Print("A stale lock owner and a database.")
	db.Print(out.Print)
	out.Print("The locks are on %s.", srv.Label)
	out.Print("A adds %d to a balance of %d, and B adds %d: it should become %d.",
		depositOfA, opening, depositOfB, opening+depositOfA+depositOfB)

	out.Print("\nWithout the token:\n  %s\n", plainUpdate)
	plain, err := stage.round(ctx, false)
	if err != nil {
		return nil, err
	}
	out.Print("        The balance is %d.%s", plain.balance, plain.missing())

	out.Print("\nWith the token:\n  %s\n", fencedUpdate)
	fenced, err := stage.round(ctx, true)
	if err != nil {
		return nil, err
	}
	out.Print("        The balance is %d.%s", fenced.balance, fenced.missing())

	problems := verdict(plain, fenced)
	if len(problems) == 0 {
		out.Print("\nThe lock alone did not protect the balance, because a stopped process cannot")
		out.Print("know that its lease is over. The token did: the stale write touched no row.")
	}
	return problems, nil
}
