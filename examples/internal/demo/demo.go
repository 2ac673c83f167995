// Package demo is what the examples share: the Redis that they run on, the
// processes that they start, and a main function that ends with a verdict.
package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/leasehold-go/leasehold/internal/database"
)

// Program is an example: a parent process that shows something, and the roles of
// its child processes.
type Program struct {
	Name string

	// Run is the whole show. The problems that it returns went against what the
	// example promises.
	Run   func(s *Show) Problems
	Roles map[string]Role

	Serves bool // it runs until it is interrupted, which is no problem
}

// limit is after how long a run is given up.
const limit = 100 * time.Second

// Problems is what went against what an example promises, and what kept it from
// being tried.
type Problems []string

// If adds a problem if something is wrong.
func (p *Problems) If(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

// Main runs the program as the parent, or in a child as its role, and exits: with
// 0 where Run found no problem.
func (p Program) Main() {
	p.RunIfChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !p.Serves {
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v: gave up", limit))
		defer cancel()
	}
	problems, err := p.Show(ctx, os.Stdout)
	if ctx.Err() != nil && !p.Serves {
		err = context.Cause(ctx)
	}
	problems.If(err != nil, "%v", err)
	for _, problem := range problems {
		fmt.Fprintf(os.Stderr, "%s: %s\n", p.Name, problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// RunIfChild runs the role and exits, where this process was started by a
// [Fleet]. A TestMain calls it first, because a test binary's children are
// test binaries.
func (p Program) RunIfChild() {
	// go-redis logs each connection that an example cuts. What matters comes back
	// as an error, too.
	logging.Disable()
	if child := os.Getenv(envChild); child != "" {
		if err := runChild(p.Roles, child); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// Show is one run of an example, as its parent process sees it. Run reads as the
// story that it tells: what fails in it, also in a method of a [Fleet] or a [Process], ends the
// show with that error.
type Show struct {
	Ctx    context.Context
	URL    string // of the Redis that all processes share; never printed: it may hold a password
	Server string // what is printed of it
	Redis  *redis.Client

	name  string
	out   io.Writer
	began time.Time
	ends  []func() // what was started is ended in the reverse order
}

// failure is what Check panics with.
type failure struct{ error }

// catch makes the error of Check that of the function that defers it.
func catch(err *error) {
	switch failed := recover().(type) {
	case nil:
	case failure:
		*err = failed.error
	default:
		panic(failed)
	}
}

// Check ends the show, or the child, with an error, if there is one. It may be called only on
// the goroutine of Run, or of a Role.
func Check(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(failure{err})
	}
}

// Must is Check, and returns the value.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Show finds or starts the Redis, runs the whole show and prints it on out. An error
// says that the show could not be given.
func (p Program) Show(ctx context.Context, out io.Writer) (problems Problems, err error) {
	s := &Show{Ctx: ctx, name: p.Name, out: out, began: time.Now()}
	defer catch(&err)
	defer func() {
		for i := len(s.ends) - 1; i >= 0; i-- {
			s.ends[i]()
		}
	}()
	s.connect()
	return p.Run(s), nil
}

// Defer calls end when the show ends.
func (s *Show) Defer(end func()) { s.ends = append(s.ends, end) }

// connect finds the server of REDIS_URL, or starts the embedded one, on a TCP port so that other
// processes can use it.
func (s *Show) connect() {
	url, label := os.Getenv("REDIS_URL"), "the Redis at "
	if url == "" {
		mini := miniredis.NewMiniRedis()
		mini.ClockTTL(true) // else keys never expire there, and nothing would ever be taken over
		Check(mini.StartAddr("127.0.0.1:0"))
		s.Defer(mini.Close)
		url, label = "redis://"+mini.Addr(), "an embedded miniredis at "
	}
	s.URL, s.Redis = url, Must(Client(url))
	s.Defer(func() { _ = s.Redis.Close() })
	addr := s.Redis.Options().Addr
	s.Server = label + addr
	ctx, cancel := context.WithTimeout(s.Ctx, 3*time.Second)
	defer cancel()
	if err := s.Redis.Ping(ctx).Err(); err != nil {
		Check(fmt.Errorf("no answer from the Redis of REDIS_URL, %s: %w", addr, err))
	}
}

// Client makes a client for url. Its error does not say what is wrong with the
// URL: the parser's text would quote it, password included.
func Client(url string) (*redis.Client, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("REDIS_URL is no Redis URL; want redis://[user:password@]host[:port][/database]")
	}
	return redis.NewClient(opt), nil
}

// Database finds or makes the database of the show, which its processes find by their
// environment, and runs these statements there.
func (s *Show) Database(statements ...string) (*database.Database, *sql.DB) {
	d, db, err := database.Make(s.Ctx, RunName(s.name), statements...)
	Check(err)
	s.Defer(d.Close)
	s.Defer(func() { _ = db.Close() })
	return d, db
}

// Print prints a line.
func (s *Show) Print(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// Say prints a line with the time since the show began.
func (s *Show) Say(format string, args ...any) {
	s.Print("%5.1fs  %s", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}
