package harness

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Dial makes a child process's client of the server that url names.
func Dial(url string) *redis.Client { return redis.NewClient(Value(redis.ParseURL(url))) }

// Value is what a call returned that must not fail, in a child process.
func Value[T any](v T, err error) T {
	Must(err)
	return v
}

// Must ends a child process that has failed: the benchmark fails with it, since
// it waits for a line that does not come.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

// Serve is a child process's life: it hands each line of its input to do, in words, until the input ends.
func Serve(do func(words []string)) int {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		do(strings.Fields(lines.Text()))
	}
	return 0
}

// Now is the time that processes of one machine share, in ns.
func Now() int64 { return time.Now().UnixNano() }

// Children starts n processes of that function, each with these arguments, and
// returns when all have said that they are ready.
func Children(b testing.TB, n int, name string, args ...string) []*redistest.Child {
	b.Helper()
	all := make([]*redistest.Child, n)
	for i := range all {
		all[i] = redistest.StartChild(b, name, args...)
	}
	for _, c := range all {
		c.Expect("ready")
	}
	return all
}

// Delay is what the network between clients and server takes in each direction.
const Delay = 500 * time.Microsecond

func init() { redistest.RegisterChild("bench-network", networkChild) }

// networkChild is the process of a network: its arguments are the server's address and the
// delay in each direction.
func networkChild(args []string) int {
	runtime.GOMAXPROCS(8) // one of them sleeps most of the time
	relay := Value(redistest.StartRelay(args[0], Value(time.ParseDuration(args[1]))))
	fmt.Println("ready", relay.Addr())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt)
	<-ended
	return 0
}

// Behind is the same server behind a network with [Delay].
func (s *Server) Behind(b testing.TB) *Server { return s.Distant(b, 2*Delay) }

// Distant is the same server behind a network with a round trip, which keeps the order of
// what it carries, and carries whatever comes. It is a process of its own, so that it wakes
// in time while clients work. With a round trip of 0 it is the server itself.
func (s *Server) Distant(b testing.TB, roundTrip time.Duration) *Server {
	b.Helper()
	if roundTrip == 0 {
		return s
	}
	relay := redistest.StartChild(b, "bench-network", s.options.Addr, (roundTrip / 2).String())
	far := *s
	far.options.Addr = relay.Expect("ready")
	far.url = "redis://" + far.options.Addr + "/0"
	return &far
}
