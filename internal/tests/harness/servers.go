package harness

import (
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// EachServerAtOnce runs fn on every installed server, all at the same time, however few processors there are.
// Start has the server: redistest.Shared, or one of the test's own.
func EachServerAtOnce(t *testing.T, start func(testing.TB, redistest.Version) *redistest.Server, fn func(t *testing.T, srv *redistest.Server)) {
	var all sync.WaitGroup
	for _, v := range redistest.NeedServers(t) {
		all.Go(func() { t.Run(v.Name, func(t *testing.T) { fn(t, start(t, v)) }) })
	}
	all.Wait()
}

// Soak is how long a test runs that gets better with time: LEASEHOLD_SOAK, where that is set.
func Soak(tb testing.TB, short time.Duration) time.Duration {
	return fromEnv(tb, "LEASEHOLD_SOAK", short, time.ParseDuration)
}

// Rounds is how often a test repeats itself: LEASEHOLD_ROUNDS, where that is set.
func Rounds(tb testing.TB, short int) int {
	return fromEnv(tb, "LEASEHOLD_ROUNDS", short, strconv.Atoi)
}

func fromEnv[T any](tb testing.TB, name string, otherwise T, parse func(string) (T, error)) T {
	tb.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return otherwise
	}
	v, err := parse(text)
	redistest.CheckNow(tb, err == nil, "%s: %v", name, err)
	return v
}
