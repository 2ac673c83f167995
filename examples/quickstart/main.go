// Quickstart shows leasehold at work, in about ten seconds: worker processes
// share the caps of three tenants, one is killed in the middle, and then a lock
// holder that was paused for too long tries to write.
//
//	go run ./examples/quickstart
//
// It uses the Redis or Valkey at REDIS_URL, or an embedded server where that is
// not set. What it prints at the end is measured from what the processes report.
// It exits with 1 if a cap was exceeded or a stale write accepted, and also if
// that could not be tried.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

// timeLimit ends a run that hangs, whatever the reason.
const timeLimit = 45 * time.Second

func main() {
	// go-redis would log into the live display; what matters comes back as an
	// error, too.
	logging.Disable()
	if len(os.Args) > 1 { // started by another quickstart
		os.Exit(childMain(os.Args[1:]))
	}
	os.Exit(parentMain())
}

func parentMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()

	problems, err := run(ctx)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fail("not done after %v: gave up", timeLimit)
	case ctx.Err() != nil:
		fmt.Println()
		return fail("interrupted")
	case err != nil:
		return fail("%v", err)
	case len(problems) > 0:
		return fail("%s", strings.Join(problems, "\nquickstart: "))
	}
	return 0
}

func fail(format string, args ...any) int {
	fmt.Fprintf(os.Stderr, "quickstart: "+format+"\n", args...)
	return 1
}

// run is the whole show. It returns what went against the promises; an error
// says that the show could not be given.
func run(ctx context.Context) (problems []string, err error) {
	srv, err := demo.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer srv.Close()
	name := demo.RunName("quickstart") // everything that it leaves on the server expires

	scr := newScreen(os.Stdout)
	intro(scr, srv)
	history, err := capsShow(ctx, scr, srv, name)
	if err != nil {
		return nil, err
	}
	results, err := measure(history)
	if err != nil {
		return nil, err
	}
	stale, err := staleShow(ctx, scr, srv, name)
	if err != nil {
		return nil, err
	}
	report(scr, results, stale)
	return verdict(results, stale), nil
}
