// Package redistest gives the project's tests their servers and their faults: an embedded miniredis, every
// real server that scripts/servers.sh brought, a Cluster, a Sentinel set, a proxy that loses what a network
// can lose, and child processes that can be killed. Only tests import it.
//
// Most tests want [Each], which runs them on every kind of server, or, where
// they are the contract of a package, [Matrix]: on all that there is.
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		redistest.Each(t, func(t *testing.T, target redistest.Target) {
//			rdb := target.Client(t)
//			family := redistest.Name(t)
//			…
//		})
//	}
//
// The servers behind both are shared by all tests of a process. A test that
// flushes, configures, stops or kills one starts its own with [StartServer].
//
// Three environment variables are obeyed. LEASEHOLD_SERVERS names a folder of servers like the one that
// scripts/servers.sh fills. LEASEHOLD_REQUIRE_SERVERS=1 uses the servers that are installed, and fails tests
// that find none. Without either, tests that need a server are skipped; [UseServers] asks in code.
// LEASEHOLD_TEST_LOG=1 lets go-redis log.
package redistest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
	if os.Getenv("GOGC") == "" && !slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.bench=") }) {
		debug.SetGCPercent(400) // collections took 4 s of the 59 s of all tests without servers
	}
	lateness.at = time.Now() // before its first step, which may come late itself
	go watchLateness()
	before := goleak.IgnoreCurrent()
	code := m.Run()
	stopShared()
	if code == 0 {
		if err := goleak.Find(before, dialling, forkers); err != nil {
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

var (
	// If its server was gone, a pool of go-redis tries to dial once a second,
	// and notices only then that it was closed.
	dialling = goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	forkers  = goleak.IgnoreAnyFunction(here + "forkLoop")
)

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
		if err := goleak.Find(before, dialling, forkers, goleak.IgnoreAnyFunction(here+"(*process).reap")); err != nil {
			tb.Errorf("goroutines left after the test: %v", err)
		}
	})
}

// fixedSeed is the seed of a run for which LEASEHOLD_SEED names none. It is always the same, so that no change fails
// over a fault that another change made. Fresh seeds run beside the checks of a change: see make soak.
const fixedSeed = 1

func chosenSeed() (uint64, error) {
	switch text := os.Getenv("LEASEHOLD_SEED"); text {
	case "":
		return fixedSeed, nil
	case "fresh":
		return uint64(rand.Uint32()), nil // short, since people have to copy it
	default:
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("LEASEHOLD_SEED: %w; want a number or \"fresh\"", err)
		}
		return seed, nil
	}
}

// Seed returns the seed that a randomised test makes its choices from: the number in LEASEHOLD_SEED, a fresh
// one if that is "fresh", and else always the same. It is logged, so that a run that fails names it.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	seed, err := chosenSeed()
	WantErr(tb, err)
	tb.Logf("LEASEHOLD_SEED=%d", seed)
	return seed
}

// RapidSeed returns the same for the flag -rapid.seed.
func RapidSeed() string {
	seed, err := chosenSeed()
	if err != nil {
		panic(err)
	}
	return strconv.FormatUint(max(1, seed), 10) // 0 means any one
}

// Seeds runs fn as a parallel subtest for each of several seeds in a row, n of them or as many as
// LEASEHOLD_SEEDS says. The first one is Seed's. If LEASEHOLD_SEED is a number and LEASEHOLD_SEEDS is not
// set, fn runs for that one alone. After one has failed no more are begun.
func Seeds(all *testing.T, n int, fn func(t *testing.T, seed uint64)) {
	all.Helper()
	first := Seed(all)
	if named := os.Getenv("LEASEHOLD_SEED"); named != "" && named != "fresh" {
		n = 1
	}
	if text, ok := os.LookupEnv("LEASEHOLD_SEEDS"); ok {
		n = Must(strconv.Atoi(text))(all)
	}
	for i := range n {
		seed := first + uint64(i)
		all.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			if all.Failed() {
				t.Skip("another seed has failed")
			}
			fn(t, seed)
		})
	}
}
