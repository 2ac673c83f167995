package redistest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// Main is for TestMain: it runs the tests, stops the shared servers, fails the run if a goroutine is left
// over, and exits. In a process that [StartChild] started it runs the child's function instead.
//
// It also silences go-redis, which logs each connection that a test breaks, unless LEASEHOLD_TEST_LOG=1.
func Main(m *testing.M) {
	if os.Getenv(envLog) != "1" {
		redis.SetLogger(silence{})
	}
	runChild()
	code := m.Run()
	stopShared()
	if code == 0 {
		// A pool of go-redis whose server was gone tries to dial once a second,
		// and notices only then that it was closed.
		const dialling = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"
		if err := goleak.Find(goleak.IgnoreAnyFunction(dialling), goleak.IgnoreAnyFunction(here+"forkLoop")); err != nil {
			fmt.Fprintf(os.Stderr, "goroutines left after the tests: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// MainOf is Main for tests that wait for leases and values to end, not for a processor: so many run at
// a time. A -parallel on the command line is parsed later and wins.
func MainOf(m *testing.M, parallel int) {
	if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
		panic(err)
	}
	Main(m)
}

const here = "github.com/leasehold-go/leasehold/internal/redistest."

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// NoLeaks fails the test if goroutines that it started are left when it ends, after the cleanups that it
// registered later. It tells its own goroutines from older ones, so it is of no use beside parallel tests.
func NoLeaks(tb testing.TB) {
	tb.Helper()
	before := goleak.IgnoreCurrent()
	tb.Cleanup(func() {
		if tb.Failed() {
			return // what stopped the test half-way also left things running
		}
		// A shared server that this test was the first to use stays.
		if err := goleak.Find(before, goleak.IgnoreAnyFunction(here+"forkLoop"),
			goleak.IgnoreAnyFunction(here+"(*process).reap")); err != nil {
			tb.Errorf("goroutines left after the test: %v", err)
		}
	})
}
