package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestProgramRunsOncePerSlot(t *testing.T) {
	addr, rdb := server(t)
	name, file := redistest.Name(t), filepath.Join(t.TempDir(), "runs")
	begin := func(slot, script string) *tool {
		return start(t, "redis://"+addr, "run", "--mutex", name, "--key", "k", "--once", slot, "--keep", "1h", "--", "sh", "-c", "echo "+slot+" >> "+file+"; "+script)
	}
	// wantRuns is called when no program runs.
	wantRuns := func(slot string, want int) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), slot+"\n"); n != want {
			t.Errorf("the program ran %d times for slot %q; want %d", n, slot, want)
		}
	}
	for i, want := range []int{3, 0, 0} {
		script := "exit 3" // the first one fails, and leaves the slot open
		if i > 0 {
			script = "exit 0"
		}
		if got := begin("in-turn", script).code(); got != want {
			t.Errorf("run %d ended with %d; want %d", i, got, want)
		}
	}
	wantRuns("in-turn", 2)

	// Several hosts at once: the others wait for the first.
	hosts := []*tool{begin("at-once", "sleep 0.3"), begin("at-once", "sleep 0.3"), begin("at-once", "sleep 0.3")}
	for _, host := range hosts {
		if got := host.code(); got != 0 {
			t.Errorf("a host ended with %d: %s", got, host.stderr.String())
		}
	}
	wantRuns("at-once", 1)

	// A program whose lock is lost completes nothing, and neither does one that a signal ends.
	lost := begin("lost", "echo on; sleep 600")
	lost.line()
	rdb.Del(t.Context(), "leasehold:mtx:{"+name+":k}:holders")
	if got := lost.code(); got != 124 {
		t.Errorf("the tool whose lock was lost ended with %d", got)
	}
	if got := begin("lost", "kill -TERM $$").code(); got != 128+15 {
		t.Errorf("the tool of a program that a signal ended ended with %d", got)
	}
	if got := begin("lost", "exit 0").code(); got != 0 {
		t.Errorf("the last tool ended with %d", got)
	}
	wantRuns("lost", 3)
}
