// Cron shows a nightly job on three processes, which exactly one of them runs.
// In the second night the process that runs it is killed, and another goes on
// where it was. In the third night Redis is away at the hour, and the job is made
// up for when Redis is back. Each item of the job is committed in the database,
// so that nothing is done twice.
//
//	go -C examples/cron run .
//
// It uses the PostgreSQL at DATABASE_URL, or starts one of its own, or uses an
// embedded SQLite where there is none. It uses the Redis or Valkey at REDIS_URL,
// or an embedded server where that is not set. It exits with 1 if an item was not
// done exactly once, and also if the faults could not be tried.
package main

import (
	"context"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
)

var program = demo.Program{
	Name:  "cron",
	Limit: 50 * time.Second,
	Run:   run,
	Roles: map[string]demo.Role{"scheduler": scheduler},
}

func main() { program.Main() }

var names = []string{"A", "B", "C"}

func run(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
	db, err := database.Connect(ctx, demo.RunName("cron"))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return show(ctx, out, srv, db)
}

// show is the whole show on a database.
func show(ctx context.Context, out *demo.Output, srv *demo.Server, db *database.Database) ([]string, error) {
	out.Print("A nightly job of %d letters, on %d processes.", letters, len(names))
	db.Print(out.Print)
	out.Print("The lock is on %s.", srv.Label)
	out.Print("Its lease lasts %v. Three nights follow each other quickly.\n", leaseTTL)

	s, err := newStage(ctx, out, srv, db)
	if err != nil {
		return nil, err
	}
	defer s.close()
	o, err := s.play(ctx)
	if err != nil {
		return nil, err
	}
	out.Print("\n%s", o.table())
	problems := o.verdict()
	if len(problems) == 0 {
		out.Print("In each night every letter was sent exactly once.")
	}
	return problems, nil
}
