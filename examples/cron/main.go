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
	"strconv"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
	"github.com/leasehold-go/leasehold/mutex"
)

func main() { demo.Main(run, map[string]demo.Role{"scheduler": scheduler}) }

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
	db := demo.Must(database.FromEnv())
	defer db.Close()
	locks := demo.Must(mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: leaseTTL}))
	defer demo.Close(ctx, locks)
	for {
		select {
		case order := <-c.Orders:
			seeToNight(ctx, c, db, locks, order)
		case <-ctx.Done():
			return nil
		}
	}
}

// seeToNight returns when the night's job is done, by this process or another. All
// processes wait, so one of them takes over at once when another dies. A process whose clock
// is late finds the night's slot complete.
func seeToNight(ctx context.Context, c *demo.Child, db *sql.DB, locks *mutex.Mutex, order string) {
	night := demo.Must(strconv.Atoi(order))
	for ctx.Err() == nil {
		_, err := locks.DoOnce(ctx, "nightly", order, keep, func(ctx context.Context, _ uint64) error {
			return runNight(ctx, c, db, night) // nil completes the night's slot
		})
		switch {
		case err == nil:
			c.Report(demo.Event{Kind: over, Number: night})
			return
		case errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrLost):
			c.Report(demo.Event{Kind: rests, Number: night})
			time.Sleep(100 * time.Millisecond)
		case ctx.Err() == nil:
			demo.Check(err)
		}
	}
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

func run(s *demo.Show) (problems demo.Problems) {
	d, db := s.Database(createTables...)
	fleet := s.Fleet()
	alive := map[string]*demo.Process{}
	for _, name := range []string{"A", "B", "C"} {
		alive[name] = fleet.Start(name, "scheduler")
	}
	s.Print("A nightly job of %d letters, on %d processes.", letters, len(alive))
	d.Print(s.Print)
	s.Print("The lock is on %s.", s.Server)
	s.Print("Its lease lasts %v. Three nights follow each other quickly.\n", leaseTTL)
	strike := func(night int) {
		s.Say("Night %d: the hour strikes.", night)
		for _, p := range alive {
			p.Send(strconv.Itoa(night))
		}
	}
	// all waits until every process that lives has reported something of a night.
	all := func(kind string, night int) {
		for name := range alive {
			fleet.Await(demo.Event{From: name, Kind: kind, Number: night})
		}
	}

	strike(1)
	all(over, 1)
	strike(2)
	killed := fleet.Await(demo.Event{Kind: sent, Number: 2, Item: 5}).From
	alive[killed].Kill()
	delete(alive, killed)
	s.Say("%s is killed in the middle.", killed)
	all(over, 2)
	for _, p := range alive {
		p.Cut()
	}
	s.Say("Redis is away.")
	strike(3)
	all(rests, 3)
	problems.If(len(demo.Must(outbox(s.Ctx, db))) != 2*letters, "a letter of night 3 was sent while Redis was away")
	for _, p := range alive {
		p.Mend()
	}
	s.Say("Nobody could begin. Redis is back.")
	all(over, 3)
	fleet.Stop()
	s.Say("All nights are done.")
	heir, posted := false, demo.Must(outbox(s.Ctx, db))
	for l, by := range posted {
		problems.If(len(by) != 1, "letter %d of night %d was sent %d times", l.number, l.night, len(by))
		heir = heir || l.night == 2 && by[0] != killed
	}
	problems.If(len(posted) != nights*letters, "%d letters were sent; want %d", len(posted), nights*letters)
	problems.If(!heir, "nobody took over from the killed %s", killed)
	if len(problems) == 0 {
		s.Print("\nIn each night every letter was sent exactly once.")
	}
	return problems
}

// letter is one of a night.
type letter struct{ night, number int }

// outbox is the processes that sent each letter.
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
