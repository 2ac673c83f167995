package harness

import (
	"bufio"
	"fmt"
	"os"
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
