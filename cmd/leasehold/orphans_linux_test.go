package main

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func init() {
	adoptOrphans = func() {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			panic(err)
		}
	}
}

// An orphan of the program's that ended is no process that goes on: the tool reaps it
// where nobody else would, and does not wait for it.
func TestFirstProcessReapsTheProgramsOrphans(t *testing.T) {
	addr, _ := server(t)
	at := time.Now()
	x := startWith(t, "redis://"+addr, []string{asTool + "=" + asFirst}, "run", "--mutex", redistest.Name(t), "--key", "k", "--ttl", "5m", "--grace", "1m", "--",
		"sh", "-c", `(sh -c "echo on" &); sleep 0.3; exit 3`)
	x.line()
	if got := x.code(); got != 3 || strings.Contains(x.stderr.String(), "left processes behind") {
		t.Errorf("it ends with %d: %s", got, x.stderr.String())
	}
	if took := time.Since(at); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}
