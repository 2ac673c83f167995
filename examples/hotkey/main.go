// Hotkey shows what package singleflight does for a key that everybody wants:
// some server processes answer requests for one value, which a slow origin makes
// and which is cached for a second. A page shows live what reaches the origin,
// with a switch that turns the protection off.
//
//	go run ./examples/hotkey
//
// prints the page's address and serves until it is interrupted.
//
//	go run ./examples/hotkey -headless
//
// needs no browser: it runs without the protection, with it, and with it and
// stale values served during a rebuild, and prints what each came to. It exits
// with 1 if with protection there was more than one load in an expiry, and also
// if that could not be tried.
//
// It uses the Redis or Valkey at REDIS_URL, or an embedded server where that is
// not set. See -help for what can be set.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	// What matters comes back as an error, too.
	logging.Disable()
	if len(os.Args) == 3 && os.Args[1] == childArg { // started by another hotkey
		os.Exit(childMain(os.Args[2]))
	}
	os.Exit(parentMain(os.Args[1:], os.Stdout))
}

func parentMain(args []string, out io.Writer) int {
	set, err := parse(args, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // it has been said
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program whatever it does

	if !set.headless {
		if err := show(ctx, set, out); err != nil {
			return fail("%v", err)
		}
		return 0 // interrupted: there is no other end
	}
	ctx, cancel := context.WithTimeout(ctx, set.timeLimit())
	defer cancel()
	problems, err := headless(ctx, set, out)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fail("not done after %v: gave up", set.timeLimit())
	case ctx.Err() != nil:
		return fail("interrupted")
	case err != nil:
		return fail("%v", err)
	case len(problems) > 0:
		return fail("%s", strings.Join(problems, "\nhotkey: "))
	}
	return 0
}

func fail(format string, args ...any) int {
	fmt.Fprintf(os.Stderr, "hotkey: "+format+"\n", args...)
	return 1
}
