// Cron shows a nightly job on three processes, which exactly one of them runs. In the
// second night the process that runs it is killed, and another goes on where it was. In the
// third night Redis is away at the hour, and the job is made up for when Redis is back. Each
// item of the job is committed in the database, so nothing is done twice.
//
//	go -C examples/cron run .
//
// It uses the PostgreSQL at DATABASE_URL, or starts one, or uses an embedded SQLite. It uses
// the Redis or Valkey at REDIS_URL, or an embedded server. It exits with 1 if an item was not
// done exactly once, and also if the faults could not be tried.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
	"github.com/leasehold-go/leasehold/mutex"
)

var program = demo.Program{
	Name:  "cron",
	Limit: 50 * time.Second,
	Run:   run,
	Roles: map[string]demo.Role{"scheduler": scheduler},
}

func main() { program.Main() }

const (
	nights  = 3
	letters = 12 // of a night

	leaseTTL    = time.Second // how long the job rests when its process has died; short, since somebody is watching
	keep        = time.Minute // how long a night's slot is remembered; longer than clocks of processes differ
	letterTakes = 60 * time.Millisecond
)

// The database records the letters of a night that were sent, so a process that takes over
// sends the rest. The slot in Redis records that the night is done. The outbox stands for what
// a letter does, and has no key that would hide a letter that is sent twice.
var createTables = []string{
	`CREATE TABLE done (night BIGINT, letter BIGINT, PRIMARY KEY (night, letter))`,
	`CREATE TABLE outbox (night BIGINT, letter BIGINT, sent_by TEXT NOT NULL)`,
}

// send sends a letter, unless that was done before, and reports whether it did. The mark
// and the effect are one transaction: a process that dies in the middle leaves neither, and of
// two that try at once one finds the mark. An effect outside the database (a mail) can only be
// sent with a key by which its receiver drops the second one.
func send(ctx context.Context, db *sql.DB, night, letter int, sender string) (sent bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // does nothing after Commit
	marked, err := tx.ExecContext(ctx, `INSERT INTO done VALUES ($1, $2) ON CONFLICT DO NOTHING`, night, letter)
	if err != nil {
		return false, err
	}
	if n, err := marked.RowsAffected(); err != nil || n == 0 {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO outbox VALUES ($1, $2, $3)`, night, letter, sender); err != nil {
		return false, err
	}
	return true, tx.Commit()
}

// What a scheduler reports. Number is the night.
const (
	sent  = "sent"  // Item is the letter
	over  = "over"  // the night's job is done, by this process or another
	rests = "rests" // the lock could not be had; the process tries again
)

// scheduler runs the job in each night whose hour strikes. Its parent is the clock: an
// order is the number of a night. A real one sleeps until the hour, and at its start looks for
// nights that were missed.
func scheduler(ctx context.Context, c *demo.Child) error {
	db, err := database.FromEnv()
	if err != nil {
		return err
	}
	defer db.Close()
	locks, err := mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: leaseTTL})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, locks)
	for {
		select {
		case order := <-c.Orders:
			if err := seeToNight(ctx, c, db, locks, order); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// seeToNight returns when the night's job is done, by this process or another. All
// processes wait, so one of them takes over at once when another dies. A process whose clock
// is late finds the night's slot complete.
func seeToNight(ctx context.Context, c *demo.Child, db *sql.DB, locks *mutex.Mutex, order string) error {
	night, err := strconv.Atoi(order)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		_, err := locks.DoOnce(ctx, "nightly", order, keep, func(ctx context.Context, _ uint64) error {
			return runNight(ctx, c, db, night) // nil completes the night's slot
		})
		switch {
		case err == nil:
			c.Report(demo.Event{Kind: over, Number: night})
			return nil
		case errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrLost):
			c.Report(demo.Event{Kind: rests, Number: night})
			time.Sleep(100 * time.Millisecond)
		case ctx.Err() == nil:
			return err
		}
	}
	return nil
}

// runNight sends what is left of the night's letters. ctx ends when the lease is lost.
func runNight(ctx context.Context, c *demo.Child, db *sql.DB, night int) error {
	for letter := 1; letter <= letters; letter++ {
		isNew, err := send(ctx, db, night, letter, c.Name)
		if err != nil {
			return err
		}
		if isNew {
			c.Report(demo.Event{Kind: sent, Number: night, Item: letter})
			time.Sleep(letterTakes)
		}
	}
	return nil
}

func run(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
	d, db, err := database.Make(ctx, demo.RunName("cron"), createTables...)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	defer db.Close()
	link, err := demo.NewLink(srv)
	if err != nil {
		return nil, err
	}
	defer link.Close()
	fleet := demo.NewFleet(srv, demo.RunName("cron"))
	defer fleet.Close()
	alive := map[string]*demo.Process{}
	for _, name := range []string{"A", "B", "C"} {
		if alive[name], err = fleet.Start(demo.Spec{Name: name, Role: "scheduler", Env: d.Env(), Link: link}); err != nil {
			return nil, err
		}
	}
	out.Print("A nightly job of %d letters, on %d processes.", letters, len(alive))
	d.Print(out.Print)
	out.Print("The lock is on %s.", srv.Label)
	out.Print("Its lease lasts %v. Three nights follow each other quickly.\n", leaseTTL)

	strike := func(night int) (err error) {
		out.Say("Night %d: the hour strikes.", night)
		for _, p := range alive {
			err = errors.Join(err, p.Send(strconv.Itoa(night)))
		}
		return err
	}
	// all waits until every process that lives has reported something of a night.
	all := func(kind string, night int) error {
		for name := range alive {
			if _, err := fleet.Await(ctx, fmt.Sprintf("%s: %s, night %d", name, kind, night), func(e demo.Event) bool {
				return e.From == name && e.Kind == kind && e.Number == night
			}); err != nil {
				return err
			}
		}
		return nil
	}

	if err := errors.Join(strike(1), all(over, 1), strike(2)); err != nil {
		return nil, err
	}
	fifth, err := fleet.Await(ctx, "the fifth letter", func(e demo.Event) bool { return e.Kind == sent && e.Number == 2 && e.Item == 5 })
	if err != nil {
		return nil, err
	}
	alive[fifth.From].Kill()
	delete(alive, fifth.From)
	out.Say("%s is killed in the middle.", fifth.From)
	if err := all(over, 2); err != nil {
		return nil, err
	}
	link.Cut()
	out.Say("Redis is away.")
	if err := errors.Join(strike(3), all(rests, 3)); err != nil {
		return nil, err
	}
	early, err := outbox(ctx, db)
	if err != nil {
		return nil, err
	}
	link.Mend()
	out.Say("Nobody could begin. Redis is back.")
	if err := errors.Join(all(over, 3), fleet.Stop(ctx)); err != nil {
		return nil, err
	}
	out.Say("All nights are done.")
	sent, err := outbox(ctx, db)
	problems := verdict(sent, early, fifth.From)
	if err == nil && len(problems) == 0 {
		out.Print("\nIn each night every letter was sent exactly once.")
	}
	return problems, err
}

// letter is one of a night, and the processes that sent it.
type letter struct{ night, number int }

func outbox(ctx context.Context, db *sql.DB) (map[letter][]string, error) {
	rows, err := db.QueryContext(ctx, `SELECT night, letter, sent_by FROM outbox`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[letter][]string{}
	for rows.Next() {
		var l letter
		var by string
		if err := rows.Scan(&l.night, &l.number, &by); err != nil {
			return nil, err
		}
		all[l] = append(all[l], by)
	}
	return all, rows.Err()
}

// verdict judges the outbox: early is what was in it while Redis was away.
func verdict(sent, early map[letter][]string, killed string) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	heir := false
	for night := 1; night <= nights; night++ {
		for n := 1; n <= letters; n++ {
			by := sent[letter{night, n}]
			if len(by) != 1 {
				bad("letter %d of night %d was sent %d times", n, night, len(by))
			}
			heir = heir || night == 2 && len(by) > 0 && by[0] != killed
		}
	}
	if len(early) != 2*letters {
		bad("a letter of night 3 was sent while Redis was away")
	}
	if !heir {
		bad("nobody took over from the killed %s", killed)
	}
	return problems
}
