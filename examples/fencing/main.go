// Fencing shows a stale lock owner and a database, with and without the token that keeps
// it out. Process A takes the lock, reads an account's balance and is stopped (SIGSTOP) for
// longer than its lease lasts. Process B takes the lock and writes. Then A goes on, and writes
// what it had computed before.
//
//	go -C examples/fencing run .
//
// It uses the PostgreSQL at DATABASE_URL, or starts one, or uses an embedded SQLite. It uses
// the Redis or Valkey at REDIS_URL, or an embedded server. It exits with 1 if the stale write
// was accepted in spite of the token, and also if that could not be tried.
package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
	"github.com/leasehold-go/leasehold/mutex"
)

func main() { demo.Main(run, map[string]demo.Role{"depositor": depositor}) }

const (
	account  = "acme"
	opening  = 100
	depositA = 30
	depositB = 50

	lockTTL = time.Second // short, since somebody is watching

	createTable = `CREATE TABLE account (id TEXT PRIMARY KEY, balance BIGINT NOT NULL, last_token BIGINT NOT NULL)`
	openAccount = `INSERT INTO account VALUES ('acme', 100, 0)`

	// The fenced statement checks and writes in one step: no other write can come between.
	// A token is accepted once; a holder that writes several times would compare with <=.
	plainUpdate  = `UPDATE account SET balance = $1 WHERE id = $2`
	fencedUpdate = `UPDATE account SET balance = $1, last_token = $3
    WHERE id = $2 AND last_token < $3`
)

func readBalance(ctx context.Context, db *sql.DB) (balance int, err error) {
	err = db.QueryRowContext(ctx, `SELECT balance FROM account WHERE id = $1`, account).Scan(&balance)
	return balance, err
}

// writeBalance returns how many rows it touched. 0 says that a holder with a later token
// has written.
func writeBalance(ctx context.Context, db *sql.DB, balance int, token uint64, fenced bool) (int64, error) {
	statement, args := plainUpdate, []any{balance, account}
	if fenced {
		statement, args = fencedUpdate, append(args, int64(token))
	}
	result, err := db.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// What a depositor reports.
const (
	read     = "read"  // Token is its lock's, Number the balance
	wrote    = "wrote" // Number is the balance; Text is accepted or refused
	unlocked = "unlocked"

	accepted = "accepted"
	refused  = "refused"
	lost     = "lost" // Text of unlocked: what Unlock returned
)

// depositor adds an amount to the balance under the lock. Between reading and writing it
// waits for its parent's word, so that the parent can stop it there. Where its write is refused
// it starts again with a new lock, as a program should.
func depositor(ctx context.Context, c *demo.Child) error {
	amount, fenced := depositA, c.Args[0] == "fenced"
	if c.Name == "B" {
		amount = depositB
	}
	db := demo.Must(database.FromEnv())
	defer db.Close()
	locks := demo.Must(mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: lockTTL}))
	defer demo.Close(ctx, locks)
	for {
		lock := demo.Must(locks.Lock(ctx, account))
		balance := demo.Must(readBalance(ctx, db))
		c.Report(demo.Event{Kind: read, Token: lock.Token(), Number: balance})
		select {
		case <-c.Orders: // go on
		case <-ctx.Done():
			return nil
		}
		// Not under the lock's Context, which has ended by now if the lock is lost: this is
		// the process that was stopped after it last looked there, with its write already
		// under way. No client can rule that out.
		rows := demo.Must(writeBalance(ctx, db, balance+amount, lock.Token(), fenced))
		c.Report(demo.Event{Kind: wrote, Number: balance + amount, Text: map[bool]string{true: accepted, false: refused}[rows > 0]})
		how := "held to the end"
		if err := lock.Unlock(); errors.Is(err, leasehold.ErrLost) {
			how = lost
		} else {
			demo.Check(err)
		}
		c.Report(demo.Event{Kind: unlocked, Text: how})
		if rows > 0 {
			return nil
		}
	}
}

func run(s *demo.Show) demo.Problems {
	d, db := s.Database()
	s.Print("A stale lock owner and a database.")
	d.Print(s.Print)
	s.Print("The locks are on %s.", s.Server)
	s.Print("A adds %d to a balance of %d, and B adds %d: it should become %d.", depositA, opening, depositB, opening+depositA+depositB)
	s.Print("\nWithout the token:\n  %s\n", plainUpdate)
	plain := round(s, db, "plain")
	s.Print("\nWith the token:\n  %s\n", fencedUpdate)
	problems := verdict(plain, round(s, db, "fenced"))
	if len(problems) == 0 {
		s.Print("\nThe lock alone did not protect the balance, because a stopped process cannot")
		s.Print("know that its lease is over. The token did: the stale write touched no row.")
	}
	return problems
}

// outcome is how a round ended.
type outcome struct {
	oldToken, newToken uint64 // of A's first lock and of B's
	stale              string // A's late write: accepted or refused
	told               string // what A's Unlock said after it
	afterStale         int    // the balance after the late write
	balance            int    // at the end
}

// round is one run of the story.
func round(s *demo.Show, db *sql.DB, mode string) (o outcome) {
	for _, statement := range []string{`DROP TABLE IF EXISTS account`, createTable, openAccount} {
		demo.Must(db.ExecContext(s.Ctx, statement))
	}
	fleet := s.Fleet()
	known := 0
	next := func(name, kind string) demo.Event {
		e := fleet.Await(demo.Event{From: name, Kind: kind, Index: known})
		known = e.Index + 1
		switch kind {
		case read:
			s.Say("%s has the lock, with token %d, and reads %d.", name, e.Token, e.Number)
		case wrote:
			s.Say("%s writes %d: %s.", name, e.Number, e.Text)
		}
		return e
	}
	a := fleet.Start("A", "depositor", mode)
	o.oldToken = next("A", read).Token
	a.Pause()
	s.Say("A is stopped here (SIGSTOP). Its lease of %v runs out.", lockTTL)
	b := fleet.Start("B", "depositor", mode)
	o.newToken = next("B", read).Token
	b.Send("write")
	next("B", wrote)
	next("B", demo.Ended)
	s.Say("A goes on (SIGCONT), and does not know that time has passed.")
	a.Resume()
	a.Send("write")
	o.stale = next("A", wrote).Text
	o.told = next("A", unlocked).Text
	s.Say("A unlocks, and is told: the lease was %s.", o.told)
	o.afterStale = demo.Must(readBalance(s.Ctx, db))
	if o.stale == refused { // it begins anew
		next("A", read)
		a.Send("write")
		next("A", wrote)
	}
	next("A", demo.Ended)
	fleet.Stop()
	o.balance = demo.Must(readBalance(s.Ctx, db))
	s.Print("        The balance is %d.", o.balance)
	return o
}

// verdict lists what went against what the example shows, and what kept it from being
// tried: a refusal proves something only where the same write without the token did harm.
func verdict(plain, fenced outcome) (problems demo.Problems) {
	for _, o := range []outcome{plain, fenced} {
		problems.If(o.newToken <= o.oldToken, "B's token %d is not above A's %d", o.newToken, o.oldToken)
		problems.If(o.told != lost, "A was not told that its lease was lost, so it was not stale")
	}
	problems.If(plain.stale != accepted || plain.balance != opening+depositA,
		"without the token the stale write did no harm (%s, balance %d): the refusal proves nothing", plain.stale, plain.balance)
	problems.If(fenced.stale != refused, "the stale write, with token %d after %d, was %s", fenced.oldToken, fenced.newToken, fenced.stale)
	problems.If(fenced.afterStale != opening+depositB, "after the stale write the balance was %d; want B's %d", fenced.afterStale, opening+depositB)
	problems.If(fenced.balance != opening+depositA+depositB, "at the end the balance is %d; want %d with both deposits", fenced.balance, opening+depositA+depositB)
	return problems
}
