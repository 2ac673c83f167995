// Package demo is what the examples share: the Redis that they run on, the
// processes that they start, and a main function that ends with a verdict.
package demo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/leasehold-go/leasehold/internal/database"
)

// Problems is what went against what an example promises, and what kept it from
// being tried.
type Problems []string

// If adds a problem if something is wrong.
func (p *Problems) If(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

// Main is an example's main function. In the parent process it gives the show, and exits
// with 1 if run found a problem. A child process, which a [Fleet] has started, plays its role.
func Main(run func(s *Show) Problems, roles map[string]Role) {
	// go-redis logs each connection that an example cuts. What matters comes back
	// as an error, too.
	logging.Disable()
	var problems Problems
	if child := os.Getenv(envChild); child != "" {
		err := runChild(roles, child)
		problems.If(err != nil, "%v", err)
	} else {
		problems = give(run)
	}
	for _, problem := range problems {
		fmt.Fprintln(os.Stderr, problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// Show is one run of an example, as its parent process sees it. Its run reads as the
// story that it tells: what fails in it, also in a method of a [Fleet] or a [Process], ends the
// show with that error.
type Show struct {
	Ctx    context.Context
	URL    string // of the Redis that all processes share; never printed: it may hold a password
	Server string // what is printed of it
	Redis  *redis.Client

	began time.Time
	ends  []func() // what was started is ended in the reverse order
}

// give finds or starts the Redis, and runs the whole show.
func give(run func(s *Show) Problems) (problems Problems) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &Show{Ctx: ctx, began: time.Now()}
	var err error
	defer func() { problems.If(err != nil, "%v", err) }()
	defer catch(&err)
	defer func() {
		for i := len(s.ends) - 1; i >= 0; i-- {
			s.ends[i]()
		}
	}()
	s.connect()
	return run(s)
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
// the goroutine of the show, or of a Role.
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
	d, db, err := database.Make(s.Ctx, RunName(), statements...)
	Check(err)
	s.Defer(d.Close)
	s.Defer(func() { _ = db.Close() })
	return d, db
}

// RunName is a name that keeps a run apart from others on the same server.
func RunName() string { return "example-" + strings.ToLower(rand.Text()[:8]) }

// Print prints a line.
func (s *Show) Print(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// Say prints a line with the time since the show began.
func (s *Show) Say(format string, args ...any) {
	s.Print("%5.1fs  %s", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}
