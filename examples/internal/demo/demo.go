// Package demo is what the examples share: the Redis that they run on, the
// processes that they start, and a main function that ends with a verdict.
package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

// Program is an example: a parent process that shows something, and the roles of
// its child processes.
type Program struct {
	Name  string
	Limit time.Duration // after this long a run is given up

	// Run is the whole show, on a Redis. The problems that it returns went against
	// what the example promises; an error says that the show could not be given.
	Run   func(ctx context.Context, out *Output, srv *Server) (problems []string, err error)
	Roles map[string]Role
}

// Main runs the program as the parent, or in a child as its role, and exits: with
// 0 where Run found no problem.
func (p Program) Main() {
	p.RunIfChild()
	os.Exit(p.parent())
}

// RunIfChild runs the role and exits, where this process was started by a
// [Fleet]. A TestMain calls it first, because a test binary's children are
// test binaries.
func (p Program) RunIfChild() {
	// go-redis logs each connection that an example cuts. What matters comes back
	// as an error, too.
	logging.Disable()
	if role := os.Getenv(envRole); role != "" {
		os.Exit(childMain(p.Roles, role))
	}
}

// Show finds or starts the Redis, runs the whole show and prints it on w.
func (p Program) Show(ctx context.Context, w io.Writer) (problems []string, err error) {
	srv, err := Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer srv.Close()
	return p.Run(ctx, NewOutput(w), srv)
}

func (p Program) parent() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()

	problems, err := p.Show(ctx, os.Stdout)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return p.fail("not done after %v: gave up", p.Limit)
	case ctx.Err() != nil:
		return p.fail("interrupted")
	case err != nil:
		return p.fail("%v", err)
	case len(problems) > 0:
		for _, problem := range problems {
			p.fail("%s", problem)
		}
		return 1
	}
	return 0
}

func (p Program) fail(format string, args ...any) int {
	fmt.Fprintf(os.Stderr, p.Name+": "+format+"\n", args...)
	return 1
}

// RunName is a name that keeps a run apart from others on the same server.
func RunName(program string) string {
	return program + "-" + strings.ToLower(rand.Text()[:8])
}

// Output is what the reader of an example sees.
type Output struct {
	w     io.Writer
	began time.Time
}

// NewOutput begins an output on w; its times count from now.
func NewOutput(w io.Writer) *Output { return &Output{w: w, began: time.Now()} }

// Print prints a line.
func (o *Output) Print(format string, args ...any) {
	fmt.Fprintf(o.w, format+"\n", args...)
}

// Say prints a line with the time since the output began.
func (o *Output) Say(format string, args ...any) {
	fmt.Fprintf(o.w, "%5.1fs  %s\n", time.Since(o.began).Seconds(), fmt.Sprintf(format, args...))
}
