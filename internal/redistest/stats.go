package redistest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Commandstats says how often each command ran on a real server since its start or its last CONFIG RESETSTAT,
// by lower-case name, those that scripts call included. On a server that other tests use, only the difference
// of two such counts of a rare command means anything.
func Commandstats(tb testing.TB, rdb redis.Cmdable) map[string]int64 {
	tb.Helper()
	text, err := rdb.Info(tb.Context(), "commandstats").Result()
	CheckNow(tb, err == nil, "commandstats: %v", err)
	calls := map[string]int64{}
	for line := range strings.Lines(text) {
		// cmdstat_evalsha:calls=2,usec=…
		line, ok := strings.CutPrefix(line, "cmdstat_")
		if !ok {
			continue
		}
		name, figures, _ := strings.Cut(line, ":calls=")
		number, _, _ := strings.Cut(figures, ",")
		n, err := strconv.ParseInt(number, 10, 64)
		CheckNow(tb, err == nil, "commandstats: line %q: %v", line, err)
		calls[name] = n
	}
	return calls
}
