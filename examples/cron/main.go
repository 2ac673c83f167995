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
	"database/sql"
	"errors"
	"fmt"
	"slices"
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
	problems := o.verdict()
	if len(problems) == 0 {
		out.Print("\nIn each night every letter was sent exactly once.")
	}
	return problems, nil
}

const (
	nights  = 3
	letters = 12 // of a night
)

// The database records the letters of a night that were sent, so a process that takes over
// sends the rest. The slot in Redis records that the night is done.
//
// The outbox stands for what a letter does. It has no key that would hide a
// letter that is sent twice.
var createTables = []string{
	`CREATE TABLE done (night BIGINT, letter BIGINT, PRIMARY KEY (night, letter))`,
	`CREATE TABLE outbox (night BIGINT, letter BIGINT, sent_by TEXT NOT NULL)`,
}

const (
	markLetter = `INSERT INTO done VALUES ($1, $2) ON CONFLICT DO NOTHING`
	sendLetter = `INSERT INTO outbox VALUES ($1, $2, $3)`
)

func openTables(ctx context.Context, db *sql.DB) error {
	return database.Exec(ctx, db, createTables...)
}

// send sends a letter, unless that was done before, and reports whether it did.
// The mark and the effect are one transaction: a process that dies in the middle
// leaves neither, and of two that try at once one finds the mark. An effect
// outside the database (a mail) can only be sent with a key by which its receiver
// drops the second one.
func send(ctx context.Context, db *sql.DB, night, letter int, sender string) (sent bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // does nothing after Commit
	marked, err := tx.ExecContext(ctx, markLetter, night, letter)
	if err != nil {
		return false, err
	}
	if n, err := marked.RowsAffected(); err != nil || n == 0 {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, sendLetter, night, letter, sender); err != nil {
		return false, err
	}
	return true, tx.Commit()
}

// lettersSent counts what is in the outbox, by night and letter.
func lettersSent(ctx context.Context, db *sql.DB) (map[[2]int]int, error) {
	rows, err := db.QueryContext(ctx, `SELECT night, letter FROM outbox`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	sent := map[[2]int]int{}
	for rows.Next() {
		var night, letter int
		if err := rows.Scan(&night, &letter); err != nil {
			return nil, err
		}
		sent[[2]int{night, letter}]++
	}
	return sent, rows.Err()
}

// leaseTTL bounds how long the job rests when the process that runs it has died.
// It is short because somebody is watching.
const leaseTTL = time.Second

// letterTakes is how long a letter takes to write.
const letterTakes = 60 * time.Millisecond

// What a scheduler reports. Number is the night.
const (
	begins = "begins" // it has the lock, and the night's slot is open
	sent   = "sent"   // Item is the letter
	ready  = "ready"  // all letters of the night are sent
	over   = "over"   // the process knows that the night's job is done
	rests  = "rests"  // the lock could not be had: Text says why; it tries again
)

// scheduler runs the job in each night whose hour strikes. Its parent is the
// clock: an order is the number of a night. A real one sleeps until the hour, and
// at its start looks for nights that were missed.
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
			night, err := strconv.Atoi(order)
			if err != nil {
				return err
			}
			if err := seeToNight(ctx, c, db, locks, night); err != nil {
				return err
			}
			c.Report(demo.Event{Kind: over, Number: night})
		case <-ctx.Done():
			return nil
		}
	}
}

// keep is how long a night's slot is remembered. It has to be longer than the
// time by which the clocks of the processes differ.
const keep = time.Minute

// seeToNight returns when the night's job is done, by this process or another.
// All processes wait, so one of them takes over at once when another dies. One
// whose clock is late finds the night's slot complete.
func seeToNight(ctx context.Context, c *demo.Child, db *sql.DB, locks *mutex.Mutex, night int) error {
	for ctx.Err() == nil {
		_, err := locks.DoOnce(ctx, "nightly", strconv.Itoa(night), keep, func(ctx context.Context, _ uint64) error {
			return runNight(ctx, c, db, night)
		})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
		case errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrLost):
			c.Report(demo.Event{Kind: rests, Number: night, Text: err.Error()})
			wait(ctx, 100*time.Millisecond)
		default:
			return err
		}
	}
	return nil
}

// runNight sends what is left of the night's letters. ctx ends when the lease is
// lost. When it has returned nil, the call that gives the lock back completes the
// night's slot.
func runNight(ctx context.Context, c *demo.Child, db *sql.DB, night int) error {
	c.Report(demo.Event{Kind: begins, Number: night})
	for letter := 1; letter <= letters; letter++ {
		isNew, err := send(ctx, db, night, letter, c.Name)
		if err != nil {
			return err
		}
		if isNew {
			c.Report(demo.Event{Kind: sent, Number: night, Item: letter})
			if err := wait(ctx, letterTakes); err != nil {
				return err
			}
		}
	}
	c.Report(demo.Event{Kind: ready, Number: night})
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

type stage struct {
	out       *demo.Output
	db        *sql.DB
	link      *demo.Link
	fleet     *demo.Fleet
	processes map[string]*demo.Process // that live
}

func newStage(ctx context.Context, out *demo.Output, srv *demo.Server, d *database.Database) (s *stage, err error) {
	s = &stage{out: out, processes: map[string]*demo.Process{}}
	s.fleet = demo.NewFleet(srv, demo.RunName("cron"))
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.db, err = database.Open(d.URL); err != nil {
		return nil, err
	}
	if err = openTables(ctx, s.db); err != nil {
		return nil, err
	}
	if s.link, err = demo.NewLink(srv); err != nil {
		return nil, err
	}
	for _, name := range names {
		spec := demo.Spec{Name: name, Role: "scheduler", Env: d.Env(), Link: s.link}
		if s.processes[name], err = s.fleet.Start(spec); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *stage) close() {
	s.fleet.Close()
	if s.link != nil {
		s.link.Close()
	}
	if s.db != nil {
		_ = s.db.Close()
	}
}

// outcome is what became of the nights.
type outcome struct {
	events   []demo.Event
	sent     map[[2]int]int // by night and letter
	killed   string
	killedAt time.Time
	backAt   time.Time // when Redis was back
}

func (s *stage) play(ctx context.Context) (o outcome, err error) {
	if err := s.strike(1); err != nil {
		return o, err
	}
	if err := s.awaitReady(ctx, 1); err != nil {
		return o, err
	}

	if err := s.strike(2); err != nil {
		return o, err
	}
	fifth, err := s.fleet.Await(ctx, "the second night's fifth letter", func(e demo.Event) bool {
		return e.Kind == sent && e.Number == 2 && e.Item == 5
	})
	if err != nil {
		return o, err
	}
	o.killed = fifth.From
	s.processes[o.killed].Kill()
	o.killedAt = time.Now()
	delete(s.processes, o.killed)
	s.out.Say("%s is killed in the middle.", o.killed)
	if err := s.awaitReady(ctx, 2); err != nil {
		return o, err
	}

	s.link.Cut()
	s.out.Say("Redis is away.")
	if err := s.strike(3); err != nil {
		return o, err
	}
	if err := s.awaitAll(ctx, rests, 3); err != nil {
		return o, err
	}
	o.backAt = time.Now()
	s.link.Mend()
	s.out.Say("Nobody could begin. Redis is back.")
	if err := s.awaitReady(ctx, 3); err != nil {
		return o, err
	}
	if err := s.fleet.Stop(ctx); err != nil {
		return o, err
	}
	o.events = s.fleet.Events()
	o.sent, err = lettersSent(ctx, s.db)
	return o, err
}

// strike tells all processes that the hour has come.
func (s *stage) strike(night int) error {
	s.out.Say("Night %d: the hour strikes.", night)
	for _, p := range s.processes {
		if err := p.Send(strconv.Itoa(night)); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) awaitReady(ctx context.Context, night int) error {
	e, err := s.fleet.Await(ctx, fmt.Sprintf("the end of night %d", night), func(e demo.Event) bool {
		return e.Kind == ready && e.Number == night
	})
	if err != nil {
		return err
	}
	s.out.Say("%s has sent the last letter of night %d.", e.From, night)
	return s.awaitAll(ctx, over, night)
}

// awaitAll waits until every process that lives has reported something of a night.
func (s *stage) awaitAll(ctx context.Context, kind string, night int) error {
	for name := range s.processes {
		if _, err := s.fleet.Await(ctx, fmt.Sprintf("%s: %s, night %d", name, kind, night), func(e demo.Event) bool {
			return e.From == name && e.Kind == kind && e.Number == night
		}); err != nil {
			return err
		}
	}
	return nil
}

// stretch is a time in which a process ran a night's job.
type stretch struct {
	process    string
	night      int
	start, end time.Time
	letters    int
}

// stretches reads from the events who ran what when. A stretch that was cut off
// ends with its last letter, or with its process.
func (o outcome) stretches() (all []stretch) {
	running := map[string]int{} // by process: its place in all
	for _, e := range o.events {
		i, runs := running[e.From]
		switch {
		case e.Kind == begins:
			running[e.From] = len(all)
			all = append(all, stretch{process: e.From, night: e.Number, start: e.At, end: e.At})
		case !runs:
		case e.Kind == sent:
			all[i].letters++
			all[i].end = e.At
		case e.Kind == ready || e.Kind == rests || e.Kind == demo.Ended:
			all[i].end = e.At
			delete(running, e.From)
		}
	}
	slices.SortFunc(all, func(a, b stretch) int { return a.start.Compare(b.start) })
	return all
}

func (o outcome) verdict() (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for night := 1; night <= nights; night++ {
		for letter := 1; letter <= letters; letter++ {
			if n := o.sent[[2]int{night, letter}]; n != 1 {
				bad("letter %d of night %d was sent %d times", letter, night, n)
			}
		}
	}
	all := o.stretches()
	for i := 1; i < len(all); i++ {
		if all[i].start.Before(all[i-1].end) {
			bad("%s and %s ran the job at once", all[i-1].process, all[i].process)
		}
	}
	tookOver := false
	for _, s := range all {
		if s.night == 2 && s.process != o.killed && s.start.After(o.killedAt) && s.letters > 0 {
			tookOver = true
		}
		if s.night == 3 && s.start.Before(o.backAt) {
			bad("%s ran night 3 while Redis was away", s.process)
		}
	}
	if !tookOver {
		bad("nobody took over from the killed %s", o.killed)
	}
	return problems
}
