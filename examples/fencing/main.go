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
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
	"github.com/leasehold-go/leasehold/mutex"
)

var program = demo.Program{
	Name:  "fencing",
	Limit: 50 * time.Second,
	Run:   run,
	Roles: map[string]demo.Role{"depositor": depositor},
}

func main() { program.Main() }

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
	db, err := database.FromEnv()
	if err != nil {
		return err
	}
	defer db.Close()
	locks, err := mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: lockTTL})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, locks)
	for {
		lock, err := locks.Lock(ctx, account)
		if err != nil {
			return err
		}
		balance, err := readBalance(ctx, db)
		if err != nil {
			return err
		}
		c.Report(demo.Event{Kind: read, Token: lock.Token(), Number: balance})
		select {
		case <-c.Orders: // go on
		case <-ctx.Done():
			return nil
		}
		// Not under the lock's Context, which has ended by now if the lock is lost: this is
		// the process that was stopped after it last looked there, with its write already
		// under way. No client can rule that out.
		rows, err := writeBalance(ctx, db, balance+amount, lock.Token(), fenced)
		if err != nil {
			return err
		}
		c.Report(demo.Event{Kind: wrote, Number: balance + amount, Text: map[bool]string{true: accepted, false: refused}[rows > 0]})
		how := "held to the end"
		if err := lock.Unlock(); errors.Is(err, leasehold.ErrLost) {
			how = lost
		} else if err != nil {
			return err
		}
		c.Report(demo.Event{Kind: unlocked, Text: how})
		if rows > 0 {
			return nil
		}
	}
}

func run(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
	if !demo.CanPause {
		return nil, errors.New("this system cannot stop a process so that it does not notice")
	}
	d, db, err := database.Make(ctx, demo.RunName("fencing"))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	defer db.Close()
	out.Print("A stale lock owner and a database.")
	d.Print(out.Print)
	out.Print("The locks are on %s.", srv.Label)
	out.Print("A adds %d to a balance of %d, and B adds %d: it should become %d.", depositA, opening, depositB, opening+depositA+depositB)
	out.Print("\nWithout the token:\n  %s\n", plainUpdate)
	plain, err := round(ctx, out, srv, d, db, "plain")
	if err != nil {
		return nil, err
	}
	out.Print("        The balance is %d.", plain.balance)
	out.Print("\nWith the token:\n  %s\n", fencedUpdate)
	fenced, err := round(ctx, out, srv, d, db, "fenced")
	if err != nil {
		return nil, err
	}
	out.Print("        The balance is %d.", fenced.balance)
	problems := verdict(plain, fenced)
	if len(problems) == 0 {
		out.Print("\nThe lock alone did not protect the balance, because a stopped process cannot")
		out.Print("know that its lease is over. The token did: the stale write touched no row.")
	}
	return problems, nil
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
func round(ctx context.Context, out *demo.Output, srv *demo.Server, d *database.Database, db *sql.DB, mode string) (o outcome, err error) {
	for _, statement := range []string{`DROP TABLE IF EXISTS account`, createTable, openAccount} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return o, err
		}
	}
	fleet := demo.NewFleet(srv, demo.RunName("fencing"))
	defer fleet.Close()
	start := func(name string) (*demo.Process, error) {
		return fleet.Start(demo.Spec{Name: name, Role: "depositor", Args: []string{mode}, Env: d.Env()})
	}
	// next waits for the next report of a kind.
	known := 0
	next := func(name, kind string) (demo.Event, error) {
		e, err := fleet.Await(ctx, name+" "+kind, func(e demo.Event) bool { return e.Index >= known && e.From == name && e.Kind == kind })
		switch {
		case err != nil:
		case kind == read:
			out.Say("%s has the lock, with token %d, and reads %d.", name, e.Token, e.Number)
		case kind == wrote:
			out.Say("%s writes %d: %s.", name, e.Number, e.Text)
		}
		known = e.Index + 1
		return e, err
	}
	write := func(p *demo.Process) (demo.Event, error) {
		if err := p.Send("write"); err != nil {
			return demo.Event{}, err
		}
		return next(p.Name, wrote)
	}

	a, err := start("A")
	if err != nil {
		return o, err
	}
	first, err := next("A", read)
	if err != nil {
		return o, err
	}
	if err := a.Pause(); err != nil {
		return o, err
	}
	out.Say("A is stopped here (SIGSTOP). Its lease of %v runs out.", lockTTL)
	b, err := start("B")
	if err != nil {
		return o, err
	}
	second, err := next("B", read)
	if err != nil {
		return o, err
	}
	if _, err := write(b); err != nil {
		return o, err
	}
	if _, err := next("B", demo.Ended); err != nil {
		return o, err
	}
	out.Say("A goes on (SIGCONT), and does not know that time has passed.")
	if err := a.Resume(); err != nil {
		return o, err
	}
	late, err := write(a)
	if err != nil {
		return o, err
	}
	told, err := next("A", unlocked)
	if err != nil {
		return o, err
	}
	out.Say("A unlocks, and is told: the lease was %s.", told.Text)
	o = outcome{oldToken: first.Token, newToken: second.Token, stale: late.Text, told: told.Text}
	if o.afterStale, err = readBalance(ctx, db); err != nil {
		return o, err
	}
	if o.stale == refused {
		if _, err := next("A", read); err != nil { // it begins anew
			return o, err
		}
		if _, err := write(a); err != nil {
			return o, err
		}
	}
	if _, err := next("A", demo.Ended); err != nil {
		return o, err
	}
	o.balance, err = readBalance(ctx, db)
	return o, err
}

// verdict lists what went against what the example shows, and what kept it from being
// tried: a refusal proves something only where the same write without the token did harm.
func verdict(plain, fenced outcome) (problems []string) {
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	for _, o := range []outcome{plain, fenced} {
		bad(o.newToken <= o.oldToken, "B's token %d is not above A's %d", o.newToken, o.oldToken)
		bad(o.told != lost, "A was not told that its lease was lost, so it was not stale")
	}
	bad(plain.stale != accepted || plain.balance != opening+depositA,
		"without the token the stale write did no harm (%s, balance %d): the refusal proves nothing", plain.stale, plain.balance)
	bad(fenced.stale != refused, "the stale write, with token %d after %d, was %s", fenced.oldToken, fenced.newToken, fenced.stale)
	bad(fenced.afterStale != opening+depositB, "after the stale write the balance was %d; want B's %d", fenced.afterStale, opening+depositB)
	bad(fenced.balance != opening+depositA+depositB, "at the end the balance is %d; want %d with both deposits", fenced.balance, opening+depositA+depositB)
	return problems
}
