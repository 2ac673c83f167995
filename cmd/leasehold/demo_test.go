package main

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The demo without a Redis has one of its own, and all in it that an engineer on call has to
// put right: a holder that hangs, a tenant that crowds the others out and a load that fails.
func TestDemoHasSomethingToPutRight(t *testing.T) {
	t.Parallel()
	x := start(t, "", "demo", "--hosts", "1")
	url := ""
	for url == "" {
		line := x.line()
		if _, behind, ok := strings.Cut(line, "export REDIS_URL="); ok {
			url = behind
		} else if line == "" && !alive(x.cmd.Process.Pid) {
			t.Fatalf("the demo ends: %s", x.stderr.String())
		}
	}
	type use struct {
		Key, ID        string
		InUse, Waiting int
		FailedForMs    int
		Holders        []struct{ ID, Label string }
	}
	ask := func(args ...string) (all []use) {
		t.Helper()
		cmd := command(t, url, args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		for line := range strings.Lines(string(out)) {
			var u use
			if err := json.Unmarshal([]byte(line), &u); err != nil {
				t.Fatalf("%v: %v: %s", args, err, line)
			}
			all = append(all, u)
		}
		return all
	}
	find := func(family, key string, is func(use) bool) {
		t.Helper()
		redistest.Eventually(t, family+"/"+key, func() bool {
			for _, u := range ask("ls", "--json", "--family", family) {
				if u.Key == key && is(u) {
					return true
				}
			}
			return false
		})
	}
	find("imports", "acme", func(u use) bool { return u.InUse >= 5 && u.Waiting > 0 })
	find("prices", "eur", func(u use) bool { return u.FailedForMs > 0 })
	find("jobs", "backup", func(u use) bool { return u.Waiting == 2 })
	hangs := ask("show", "--json", "--mutex", "jobs", "--key", "backup")[0].Holders[0]
	if hangs.Label != "node-3" {
		t.Errorf("node-3 is to hang; %s holds", hangs.Label)
	}
	revoke := command(t, url, "revoke", "--mutex", "jobs", "--key", "backup", "--reason", "a test", hangs.ID)
	if out, err := revoke.CombinedOutput(); err != nil {
		t.Fatalf("revoke: %v: %s", err, out)
	}
	find("jobs", "backup", func(u use) bool { return u.Waiting <= 1 })
	x.signal(syscall.SIGTERM)
	if got := x.code(); got != 0 {
		t.Errorf("the demo ends with %d: %s", got, x.stderr.String())
	}
}
