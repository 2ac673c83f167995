package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The demo without a Redis has one of its own, and all in it that an engineer on call has to
// put right: a holder that hangs, a tenant that crowds the others out and a load that fails.
func TestDemoHasSomethingToPutRight(t *testing.T) {
	t.Parallel()
	x := start(t, "", "demo", "--hosts", "1", "--pace", "0.2")
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
	holder := func() (id, label string) {
		for _, h := range ask("show", "--json", "--mutex", "jobs", "--key", "backup")[0].Holders {
			return h.ID, h.Label
		}
		return "", ""
	}
	lost, _ := holder()
	rdb := redis.NewClient(&redis.Options{Addr: strings.TrimPrefix(url, "redis://")})
	defer rdb.Close()
	redistest.WantErr(t, rdb.Del(t.Context(), "leasehold:mtx:{jobs:backup}:holders").Err())
	redistest.Eventually(t, "node-3 to hang again", func() bool {
		id, label := holder()
		return id != lost && label == "node-3"
	})
	typed := typedOnCall(t)
	for _, line := range typed {
		if strings.Contains(line, " ID") {
			id, _ := holder()
			line = strings.Replace(line, " ID", " -- "+id, 1)
		}
		cmd := exec.Command("sh", "-c", strings.Replace(line, "leasehold", `"$0"`, 1), command(t, url).Path)
		cmd.Env = command(t, url).Env
		if out, err := cmd.CombinedOutput(); err != nil || len(out) == 0 {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
	if len(typed) < 8 {
		t.Errorf("docs/operations.md says only %q", typed)
	}
	find("jobs", "backup", func(u use) bool { return u.Waiting <= 1 })
	x.signal(syscall.SIGTERM)
	if got := x.code(); got != 0 {
		t.Errorf("the demo ends with %d: %s", got, x.stderr.String())
	}
}

// typedOnCall are the commands of the table that docs/operations.md begins with; not doctor,
// which finds fault with the demo's server.
func typedOnCall(t *testing.T) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(text), "\n## ")
	for _, found := range regexp.MustCompile("`(leasehold (?:ls|show|set-limit|revoke) --[^`]+)`").FindAllStringSubmatch(table, -1) {
		lines = append(lines, found[1])
	}
	return lines
}
