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

// The account, and what the two processes do to it.
const (
	account    = "acme"
	opening    = 100
	depositOfA = 30
	depositOfB = 50
)

const createTable = `CREATE TABLE account (
	id         TEXT PRIMARY KEY,
	balance    BIGINT NOT NULL,
	last_token BIGINT NOT NULL)`

// The fenced statement checks and writes in one step: no other write can come
// between. A token is accepted once; a holder that writes several times would
// compare with <= instead.
const (
	plainUpdate = `UPDATE account SET balance = $1
    WHERE id = $2`
	fencedUpdate = `UPDATE account SET balance = $1, last_token = $3
    WHERE id = $2 AND last_token < $3`
)

// openAccount makes the table anew, with the opening balance.
func openAccount(ctx context.Context, db *sql.DB) error {
	if err := database.Exec(ctx, db, `DROP TABLE IF EXISTS account`, createTable); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, `INSERT INTO account VALUES ($1, $2, 0)`, account, opening)
	return err
}

func readBalance(ctx context.Context, db *sql.DB) (balance int, err error) {
	err = db.QueryRowContext(ctx, `SELECT balance FROM account WHERE id = $1`, account).Scan(&balance)
	return balance, err
}

// writeBalance returns how many rows it touched. 0 says that a holder with a
// later token has written.
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

// lockTTL is short because somebody is watching; the default of 30 s suits most
// work better.
const lockTTL = time.Second

// What a depositor reports.
const (
	locked = "locked" // Token
	read   = "read"   // Number is the balance
	wrote  = "wrote"  // Number is the balance; Text is accepted or refused
	unlock = "unlock" // Text is what Unlock returned
)

const (
	accepted = "accepted"
	refused  = "refused"
)

const (
	argFenced = "fenced"
	argPlain  = "plain"
)

// depositor adds an amount to the balance under the lock. Between reading and
// writing it waits for its parent's word, so that the parent can stop it there.
// Where its write is refused it starts again with a new lock, as a program should.
func depositor(ctx context.Context, c *demo.Child) error {
	amount, err := strconv.Atoi(c.Args[0])
	if err != nil {
		return err
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
		c.Report(demo.Event{Kind: locked, Token: lock.Token()})
		balance, err := readBalance(ctx, db)
		if err != nil {
			return err
		}
		c.Report(demo.Event{Kind: read, Number: balance})

		select {
		case <-c.Orders: // go on
		case <-ctx.Done():
			return nil
		}
		// Not under the lock's Context, which has ended by now if the lock is lost:
		// this is the process that was stopped after it last looked there, with its
		// write already under way. No client can rule that out.
		rows, err := writeBalance(ctx, db, balance+amount, lock.Token(), c.Args[1] == argFenced)
		if err != nil {
			return err
		}
		e := demo.Event{Kind: wrote, Number: balance + amount, Text: accepted}
		if rows == 0 {
			e.Text = refused
		}
		c.Report(e)

		e = demo.Event{Kind: unlock, Text: "held to the end"}
		if err := lock.Unlock(); errors.Is(err, leasehold.ErrLost) {
			e.Text = "lost"
		} else if err != nil {
			return err
		}
		c.Report(e)
		if rows > 0 {
			return nil
		}
	}
}

// stage is where the rounds take place.
type stage struct {
	out      *demo.Output
	srv      *demo.Server
	database *database.Database
}

// outcome is how a round ended.
type outcome struct {
	oldToken, newToken uint64 // of A's first lock and of B's
	stale              string // of A's late write: accepted or refused
	told               string // what A's Unlock said after it
	afterStale         int    // the balance after the late write
	balance            int    // at the end
}

// missing says in words what of the deposits the balance lacks.
func (o outcome) missing() string {
	lacks := opening + depositOfA + depositOfB - o.balance
	if lacks == 0 {
		return " Both deposits are in it."
	}
	return fmt.Sprintf(" %d are missing: the data are corrupt.", lacks)
}

// round is one run of the story.
func (s *stage) round(ctx context.Context, fenced bool) (o outcome, err error) {
	db, err := database.Open(s.database.URL)
	if err != nil {
		return o, err
	}
	defer db.Close()
	if err := openAccount(ctx, db); err != nil {
		return o, err
	}
	fleet := demo.NewFleet(s.srv, demo.RunName("fencing"))
	defer fleet.Close()

	a, err := s.start(fleet, "A", depositOfA, fenced)
	if err != nil {
		return o, err
	}
	if o.oldToken, err = s.awaitRead(ctx, fleet, "A"); err != nil {
		return o, err
	}
	if err := a.Pause(); err != nil {
		return o, err
	}
	s.out.Say("A is stopped here (SIGSTOP). Its lease of %v runs out.", lockTTL)

	b, err := s.start(fleet, "B", depositOfB, fenced)
	if err != nil {
		return o, err
	}
	if o.newToken, err = s.awaitRead(ctx, fleet, "B"); err != nil {
		return o, err
	}
	if _, err := s.write(ctx, fleet, b); err != nil {
		return o, err
	}
	if _, err := fleet.AwaitFrom(ctx, "B", demo.Ended); err != nil {
		return o, err
	}

	s.out.Say("A goes on (SIGCONT), and does not know that time has passed.")
	if err := a.Resume(); err != nil {
		return o, err
	}
	write, err := s.write(ctx, fleet, a)
	if err != nil {
		return o, err
	}
	o.stale = write.Text
	told, err := fleet.AwaitFrom(ctx, "A", unlock)
	if err != nil {
		return o, err
	}
	o.told = told.Text
	s.out.Say("A unlocks, and is told: the lease was %s.", told.Text)
	if o.afterStale, err = readBalance(ctx, db); err != nil {
		return o, err
	}
	if o.stale == refused {
		if err := s.again(ctx, fleet, a, told.Index); err != nil {
			return o, err
		}
	}
	if _, err := fleet.AwaitFrom(ctx, "A", demo.Ended); err != nil {
		return o, err
	}
	o.balance, err = readBalance(ctx, db)
	return o, err
}

// again lets a process whose write was refused take the lock anew, and write.
func (s *stage) again(ctx context.Context, fleet *demo.Fleet, p *demo.Process, after int) error {
	next := func(kind string) (demo.Event, error) {
		return fleet.Await(ctx, p.Name+" "+kind, func(e demo.Event) bool {
			return e.Index > after && e.From == p.Name && e.Kind == kind
		})
	}
	balance, err := next(read)
	if err != nil {
		return err
	}
	s.out.Say("%s begins anew: it takes the lock and reads %d.", p.Name, balance.Number)
	if err := p.Send("write"); err != nil {
		return err
	}
	write, err := next(wrote)
	if err != nil {
		return err
	}
	s.out.Say("%s writes %d: %s.", p.Name, write.Number, write.Text)
	return nil
}

func (s *stage) start(fleet *demo.Fleet, name string, amount int, fenced bool) (*demo.Process, error) {
	mode := argPlain
	if fenced {
		mode = argFenced
	}
	return fleet.Start(demo.Spec{
		Name: name, Role: "depositor",
		Args: []string{strconv.Itoa(amount), mode},
		Env:  s.database.Env(),
	})
}

// awaitRead waits until a process has the lock and has read the balance.
func (s *stage) awaitRead(ctx context.Context, fleet *demo.Fleet, name string) (token uint64, err error) {
	lock, err := fleet.AwaitFrom(ctx, name, locked)
	if err != nil {
		return 0, err
	}
	balance, err := fleet.AwaitFrom(ctx, name, read)
	if err != nil {
		return 0, err
	}
	s.out.Say("%s has the lock, with token %d, and reads %d.", name, lock.Token, balance.Number)
	return lock.Token, nil
}

// write lets a process write, and waits for it.
func (s *stage) write(ctx context.Context, fleet *demo.Fleet, p *demo.Process) (demo.Event, error) {
	if err := p.Send("write"); err != nil {
		return demo.Event{}, err
	}
	write, err := fleet.AwaitFrom(ctx, p.Name, wrote)
	if err != nil {
		return write, err
	}
	s.out.Say("%s writes %d: %s.", p.Name, write.Number, write.Text)
	return write, nil
}

// verdict lists what went against what the example shows, and what kept it from
// being tried: a refusal proves something only where the same write without the
// token did harm.
func verdict(plain, fenced outcome) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for name, o := range map[string]outcome{"without the token": plain, "with the token": fenced} {
		if o.newToken <= o.oldToken {
			bad("%s: B's token %d is not above A's %d", name, o.newToken, o.oldToken)
		}
		if o.told != "lost" {
			bad("%s: A was not told that its lease was lost, so it was not stale", name)
		}
	}
	if plain.stale != accepted || plain.balance != opening+depositOfA {
		bad("without the token the stale write did no harm (%s, balance %d): the refusal proves nothing",
			plain.stale, plain.balance)
	}
	if fenced.stale != refused {
		bad("the stale write, with token %d after %d, was %s", fenced.oldToken, fenced.newToken, fenced.stale)
	}
	if want := opening + depositOfB; fenced.afterStale != want {
		bad("after the stale write the balance was %d; want B's %d", fenced.afterStale, want)
	}
	if want := opening + depositOfA + depositOfB; fenced.balance != want {
		bad("at the end the balance is %d; want %d with both deposits", fenced.balance, want)
	}
	return problems
}
