// Jobs shows worker processes that share a table of jobs. The database decides by
// a conditional update to which worker a job belongs. A lease on each job is
// the filter before it: a worker asks the database only for jobs that nobody
// works on, and it learns from the lease that another worker has died. One lease
// is lost and one worker is killed.
//
//	go -C examples/jobs run .
//
// It uses the PostgreSQL at DATABASE_URL, or starts one of its own, or uses an
// embedded SQLite where there is none. It uses the Redis or Valkey at REDIS_URL,
// or an embedded server where that is not set. It exits with 1 if a job was not
// finished exactly once, and also if the faults could not be tried.
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
	Name:  "jobs",
	Limit: 50 * time.Second,
	Run:   run,
	Roles: map[string]demo.Role{"worker": worker},
}

func main() { program.Main() }

var workers = []string{"A", "B", "C"}

func run(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
	db, err := database.Connect(ctx, demo.RunName("jobs"))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return show(ctx, out, srv, db)
}

// show is the whole show on a database.
func show(ctx context.Context, out *demo.Output, srv *demo.Server, db *database.Database) ([]string, error) {
	out.Print("A table of %d jobs, and %d worker processes.", jobs, len(workers))
	db.Print(out.Print)
	out.Print("The leases are on %s.", srv.Label)
	out.Print("They last %v.\n", leaseTTL)

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
		out.Print("Each of the %d jobs was finished exactly once.", jobs)
	}
	return problems, nil
}
