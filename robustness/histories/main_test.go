package histories

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.UseServers()
	redistest.Main(m)
}

func setting(name, otherwise string) string {
	if text, ok := os.LookupEnv(name); ok {
		return text
	}
	return otherwise
}

func number(tb testing.TB, name string, otherwise uint64) uint64 {
	tb.Helper()
	n, err := strconv.ParseUint(setting(name, fmt.Sprint(otherwise)), 10, 64)
	redistest.CheckNow(tb, err == nil, "%s: %v", name, err)
	return n
}
