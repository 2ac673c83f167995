// Package examples runs the examples of the module as a user does.
package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Each example shows what it promises, on an embedded Redis and on a server.
func TestExamples(t *testing.T) {
	all := []string{"tenants", "hotkey", "quickstart", "extend", "leader", "transfer"} // the longest first
	all, env := all[redistest.Full(0, len(all)-1):], os.Environ()
	if os.Getenv("LEASEHOLD_REQUIRE_SERVERS") != "" {
		env = append(env, "CGO_ENABLED=0") // nothing is shared with the tests, which have the race detector, but with other builds of CI
	}
	dir := t.TempDir() + string(filepath.Separator)
	args := []string{"build", "-o", dir}
	for _, name := range all {
		args = append(args, "./"+name)
	}
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Env = env
	out, err := build.CombinedOutput()
	redistest.CheckNow(t, err == nil, "%v: %s", err, out)
	for _, name := range all {
		var args []string
		if name == "hotkey" {
			args = []string{"-headless"}
		}
		t.Run(name+"/embedded", func(t *testing.T) {
			t.Parallel()
			demotest.Check(t, dir+name, "", args...)
		})
		t.Run(name+"/server", func(t *testing.T) {
			t.Parallel()
			addr := redistest.StartServer(t, redistest.Newest(t)).Addr()
			demotest.Check(t, dir+name, "redis://"+addr, args...)
		})
	}
	if slices.Contains(all, "tenants") {
		t.Run("tenants/interrupted", func(t *testing.T) {
			t.Parallel()
			interrupt(t, dir+"tenants")
		})
	}
	// An error does not quote the URL, which may hold a password.
	text, problems, err := demotest.Run(t, dir+"transfer", "redis://:secret@127.0.0.1:1/0?max_retries=-1")
	redistest.CheckNow(t, err != nil && strings.Contains(problems, "no answer from the Redis of REDIS_URL") && !strings.Contains(text+problems, "secret"), "%v: %s%s", err, text, problems)
}

// interrupt ends the example of tenants while its limits are set: none of them, which have no expiry, stays.
func interrupt(t *testing.T, program string) {
	rdb := redistest.StartServer(t, redistest.Newest(t)).Client()
	lasting := func() (names []string) {
		for _, name := range redistest.Must(rdb.Keys(t.Context(), "*").Result())(t) {
			if rdb.PTTL(t.Context(), name).Val() == -1 {
				names = append(names, name)
			}
		}
		return names
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+rdb.Options().Addr)
	redistest.WantErr(t, cmd.Start())
	redistest.Eventually(t, "the limits", func() bool { return len(lasting()) > 0 })
	redistest.WantErr(t, cmd.Process.Signal(os.Interrupt))
	redistest.Check(t, cmd.Wait() != nil, "an interrupted example says that all was well")
	redistest.Check(t, len(lasting()) == 0, "these stay for ever: %q", lasting())
}
