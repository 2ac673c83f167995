// Package examples runs the examples of the module as a user does.
package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Each example shows what it promises, on an embedded Redis and on a server.
func TestExamples(t *testing.T) {
	all := []string{"tenants", "hotkey", "quickstart", "extend", "leader", "transfer"} // the longest first
	all, env := all[redistest.Full(0, len(all)-2):], os.Environ()
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
	// An error does not quote the URL, which may hold a password.
	text, problems, err := demotest.Run(t, dir+"transfer", "redis://:secret@127.0.0.1:1/0?max_retries=-1")
	redistest.CheckNow(t, err != nil && strings.Contains(problems, "no answer from the Redis of REDIS_URL") && !strings.Contains(text+problems, "secret"), "%v: %s%s", err, text, problems)
}
