package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func itoa(n int) string { return strconv.Itoa(n) }

// server is a server that all tests of the file share: a real one where tests on
// servers are asked for, else an embedded one.
func server(t testing.TB) (addr string, rdb *redis.Client) {
	t.Helper()
	addr = ""
	if os.Getenv("LEASEHOLD_REQUIRE_SERVERS") == "1" {
		addr = redistest.Shared(t, redistest.Newest(t)).Addr()
	} else {
		addr = redistest.Mini(t).Addr()
	}
	rdb = redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return addr, rdb
}

func TestExitCodes(t *testing.T) {
	addr, rdb := server(t)
	url := "redis://" + addr
	name := redistest.Name(t)
	busy := start(t, url, "run", "--mutex", name, "--key", "busy", "--", "sh", "-c", "echo on; sleep 600")
	busy.line()
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	lock := func(key string, more ...string) []string {
		return append([]string{"run", "--mutex", name, "--key", key}, more...)
	}
	for about, c := range map[string]struct {
		url  string
		args []string
		code int
	}{
		"the program's own":          {url, lock("a", "--", "sh", "-c", "exit 7"), 7},
		"success":                    {url, lock("b", "--", "true"), 0},
		"a signal":                   {url, lock("c", "--", "sh", "-c", "kill -KILL $$"), 137},
		"a permit":                   {url, []string{"run", "--semaphore", name, "--limit", "2", "--key", "k", "--", "sh", "-c", "exit 3"}, 3},
		"busy":                       {url, lock("busy", "--wait", "0", "--", "true"), 75},
		"busy for a while":           {url, lock("busy", "--wait", "300ms", "--", "true"), 75},
		"busy, and that's fine":      {url, lock("busy", "--wait", "0", "--conflict-exit-code", "0", "--", "true"), 0},
		"busy, with another code":    {url, lock("busy", "--wait", "0", "--conflict-exit-code", "9", "--", "true"), 9},
		"not found":                  {url, lock("busy", "--", "no-such-program-here"), 127},
		"not found, by path":         {url, lock("busy", "--", "/no/such/program"), 127},
		"can't be run":               {url, lock("busy", "--", plain), 126},
		"a folder":                   {url, lock("busy", "--", "/tmp"), 126},
		"Redis is away":              {"redis://127.0.0.1:1", lock("k", "--", "true"), 69},
		"no program":                 {url, lock("k"), 64},
		"no key":                     {url, []string{"run", "--mutex", name, "--", "true"}, 64},
		"no family":                  {url, []string{"run", "--key", "k", "--", "true"}, 64},
		"both":                       {url, lock("k", "--semaphore", "x", "--", "true"), 64},
		"no limit":                   {url, []string{"run", "--semaphore", name, "--key", "k", "--", "true"}, 64},
		"a grace beyond the third":   {url, lock("k", "--ttl", "30s", "--grace", "11s", "--", "true"), 64},
		"a short ttl":                {url, lock("k", "--ttl", "99ms", "--", "true"), 64},
		"a flag that does not exist": {url, lock("k", "--nope", "--", "true"), 64},
		"a bad URL":                  {"http://localhost", lock("k", "--", "true"), 64},
		"a command that is none":     {url, []string{"runn"}, 64},
		"an empty slot":              {url, lock("k", "--once", "", "--keep", "1h", "--", "true"), 64},
		"a slot without keep":        {url, lock("k", "--once", "s", "--", "true"), 64},
		"a short keep":               {url, lock("k", "--once", "s", "--keep", "999ms", "--", "true"), 64},
		"keep without a slot":        {url, lock("k", "--keep", "1h", "--", "true"), 64},
		"a slot of permits":          {url, []string{"run", "--semaphore", name, "--limit", "2", "--key", "k", "--once", "s", "--keep", "1h", "--", "true"}, 64},
	} {
		x := start(t, c.url, c.args...)
		if got := x.code(); got != c.code {
			t.Errorf("%s: exit code %d, want %d; standard error: %s", about, got, c.code, x.stderr.String())
		}
	}
	busy.signal(syscall.SIGTERM)
	if got := busy.code(); got != 128+15 {
		t.Errorf("the holder that got SIGTERM ends with %d", got)
	}
	for _, key := range []string{"a", "b", "c", "busy"} {
		if n := rdb.Exists(t.Context(), "leasehold:mtx:{"+name+":"+key+"}:holders").Val(); n != 0 {
			t.Errorf("the lock of %q is still held", key)
		}
	}
}

func TestProgramGetsKeyTokenAndInput(t *testing.T) {
	addr, _ := server(t)
	name := redistest.Name(t)
	run := func(args ...string) string {
		t.Helper()
		cmd := command(t, "redis://"+addr, append([]string{"run"}, args...)...)
		cmd.Env = append(cmd.Env, "LEASEHOLD_TOKEN=1", "LEASEHOLD_KEY=of another run")
		cmd.Stdin = strings.NewReader("input\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	script := `read x; echo "$x|$LEASEHOLD_KEY|$LEASEHOLD_TOKEN|$0|$1"`
	words := strings.Split(strings.TrimSpace(run("--mutex", name, "--key", "a b", "--", "sh", "-c", script, "zero", "--wait")), "|")
	if len(words) != 5 || words[0] != "input" || words[1] != "a b" || words[3] != "zero" || words[4] != "--wait" {
		t.Fatalf("the program sees %q", words)
	}
	if token, err := strconv.ParseUint(words[2], 10, 64); err != nil || token < 1e15 {
		t.Fatalf("its token is %q", words[2])
	}
	if got := strings.TrimSpace(run("--semaphore", name, "--limit", "1", "--key", "k", "--", "sh", "-c", script)); got != "input|k||sh|" {
		t.Fatalf("under a permit it sees %q", got)
	}
}

// group starts a program with a child of its own that outlives signals to itself,
// and returns the pids of both.
const group = `(trap "" TERM HUP; while :; do sleep 0.05; done) & echo $! $$; wait`

func pids(t *testing.T, line string, n int) (all []int) {
	t.Helper()
	for _, word := range strings.Fields(line) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatalf("%q is no pid", word)
		}
		all = append(all, pid)
	}
	if len(all) != n {
		t.Fatalf("%q are not %d pids", line, n)
	}
	return all
}

// guardOf is the pid of a tool's guard.
func guardOf(t *testing.T, x *tool) int {
	t.Helper()
	out, err := exec.Command("pgrep", "-P", itoa(x.cmd.Process.Pid), "-f", "run-guard").Output()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no pgrep")
	}
	if err != nil {
		t.Fatalf("pgrep finds no guard: %v", err)
	}
	return pids(t, string(out), 1)[0]
}

func TestKilledToolTakesTheProgramsGroupAlong(t *testing.T) {
	addr, _ := server(t)
	x := start(t, "redis://"+addr, "run", "--mutex", redistest.Name(t), "--key", "k", "--", "sh", "-c", group)
	all := pids(t, x.line(), 2)
	x.signal(syscall.SIGKILL)
	for _, pid := range all {
		redistest.Eventually(t, "the end of "+itoa(pid), func() bool { return !alive(pid) })
	}
}

// A tool that is stopped renews nothing: the next holder gets the lock at its
// end, and by then the program is gone.
func TestStoppedToolsProgramEndsBeforeTheLease(t *testing.T) {
	addr, _ := server(t)
	url, name := "redis://"+addr, redistest.Name(t)
	for _, how := range []string{"term", "kill"} {
		x := start(t, url, "run", "--mutex", name, "--key", "k", "--ttl", "4s", "--lost", how, "--", "sh", "-c", group)
		all := pids(t, x.line(), 2)
		x.signal(syscall.SIGSTOP)
		next := start(t, url, "run", "--mutex", name, "--key", "k", "--", "sh", "-c",
			"for p in "+itoa(all[0])+" "+itoa(all[1])+"; do kill -0 $p 2>/dev/null && ps -o stat= -p $p; done; echo over")
		for {
			line := next.line()
			if line == "over" {
				break
			}
			if !strings.HasPrefix(line, "Z") { // what the stopped tool has not reaped
				t.Fatalf("%s: the next holder sees the program, in state %q", how, line)
			}
		}
		x.signal(syscall.SIGCONT)
		if got := x.code(); got != 124 {
			t.Errorf("%s: the tool that went on ends with %d: %s", how, got, x.stderr.String())
		}
	}
}

func TestCutNetworkStopsTheProgramInTime(t *testing.T) {
	addr, rdb := server(t)
	p := redistest.NewProxy(t, addr)
	name := redistest.Name(t)
	x := start(t, "redis://"+p.Addr(), "run", "--mutex", name, "--key", "k", "--ttl", "3s", "--grace", "1s", "--", "sh", "-c",
		`trap "echo told" TERM; echo on; while :; do sleep 0.02; done`)
	x.line()
	p.Cut(true, true)
	if line := x.line(); line != "told" {
		t.Fatalf("it says %q", line)
	}
	held := "leasehold:mtx:{" + name + ":k}:holders"
	if left := rdb.PTTL(t.Context(), held).Val(); left <= 0 {
		t.Error("SIGTERM came after the lease's end")
	}
	if got := x.code(); got != 124 {
		t.Errorf("it ends with %d: %s", got, x.stderr.String())
	}
}

func TestDeletedLeaseStopsTheProgram(t *testing.T) {
	addr, rdb := server(t)
	name := redistest.Name(t)
	x := start(t, "redis://"+addr, "run", "--mutex", name, "--key", "k", "--ttl", "1s", "--", "sh", "-c", "echo on; sleep 600")
	x.line()
	rdb.Del(t.Context(), "leasehold:mtx:{"+name+":k}:holders")
	if got := x.code(); got != 124 {
		t.Errorf("it ends with %d: %s", got, x.stderr.String())
	}
}

func TestSignalWhileWaitingLeavesNoWaiter(t *testing.T) {
	addr, rdb := server(t)
	url, name := "redis://"+addr, redistest.Name(t)
	holder := start(t, url, "run", "--mutex", name, "--key", "k", "--", "sh", "-c", "echo on; sleep 600")
	holder.line()
	queue := "leasehold:mtx:{" + name + ":k}:queue"
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		x := start(t, url, "run", "--mutex", name, "--key", "k", "--", "true")
		redistest.Eventually(t, "a waiter", func() bool { return rdb.ZCard(t.Context(), queue).Val() == 1 })
		x.signal(sig)
		if got := x.code(); got != -int(sig) {
			t.Errorf("after %v it ends with %d: %s", sig, got, x.stderr.String())
		}
		if n := rdb.ZCard(t.Context(), queue).Val(); n != 0 {
			t.Errorf("after %v %d wait", sig, n)
		}
	}
}

// A lease that another process hands over is short at first, shorter than the grace
// may be.
func TestProgramThatWaitedRuns(t *testing.T) {
	addr, rdb := server(t)
	url, name := "redis://"+addr, redistest.Name(t)
	for _, how := range [][]string{{"--mutex", name}, {"--semaphore", name, "--limit", "1"}} {
		args := append([]string{"run", "--key", "k", "--ttl", "1m", "--grace", "20s"}, how...)
		holder := start(t, url, append(args, "--", "sh", "-c", "echo on; sleep 600")...)
		holder.line()
		next := start(t, url, append(args, "--", "sh", "-c", "echo on; exit 4")...)
		kind := map[string]string{"--mutex": "mtx", "--semaphore": "sem"}[how[0]]
		redistest.Eventually(t, "a waiter", func() bool {
			return rdb.ZCard(t.Context(), "leasehold:"+kind+":{"+name+":k}:queue").Val() == 1
		})
		holder.signal(syscall.SIGTERM)
		if got := next.code(); got != 4 {
			t.Errorf("%s: it ends with %d: %s", how[0], got, next.stderr.String())
		}
	}
}

// A permit of run is none of a family of that name with a total: docs/run.md says so.
func TestPermitCountsBesideATotal(t *testing.T) {
	addr, rdb := server(t)
	name := redistest.Name(t)
	s, err := semaphore.New(rdb, semaphore.Config{Name: name, Limit: 1, Total: 1})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	x := start(t, "redis://"+addr, "run", "--semaphore", name, "--key", "k", "--limit", "1", "--wait", "0", "--", "sh", "-c", "exit 4")
	if got := x.code(); got != 4 {
		t.Errorf("it ends with %d: %s", got, x.stderr.String())
	}
	redistest.WantErr(t, l.Release())
	redistest.WantErr(t, s.Close(t.Context()))
}

// A signal goes to the program alone: it decides about its children.
func TestSignalsArePassedToTheProgramAlone(t *testing.T) {
	addr, _ := server(t)
	x := start(t, "redis://"+addr, "run", "--mutex", redistest.Name(t), "--key", "k", "--", "sh", "-c",
		`trap "echo program" USR1; trap 'echo bye; kill $!; wait; exit 5' TERM
		 sh -c 'trap "echo child; exit" USR1 TERM; echo ready; while :; do sleep 0.02; done' &
		 while :; do wait; done`)
	x.line()
	x.signal(syscall.SIGUSR1)
	if line := x.line(); line != "program" {
		t.Fatalf("USR1 reaches %q", line)
	}
	x.signal(syscall.SIGTERM)
	if first, then := x.line(), x.line(); first != "bye" || then != "child" {
		t.Fatalf("TERM leads to %q and %q", first, then)
	}
	if got := x.code(); got != 5 {
		t.Errorf("it ends with %d", got)
	}
}

func TestWhatAProgramLeavesBehindEndsWithTheLease(t *testing.T) {
	addr, rdb := server(t)
	name := redistest.Name(t)
	x := start(t, "redis://"+addr, "run", "--mutex", name, "--key", "k", "--ttl", "3s", "--", "sh", "-c",
		`(trap "" TERM; while :; do sleep 0.05; done) >/dev/null 2>&1 & echo $!`)
	left := pids(t, x.line(), 1)[0]
	if got := x.code(); got != 0 {
		t.Errorf("it ends with %d: %s", got, x.stderr.String())
	}
	if alive(left) {
		t.Error("a process of the program's still runs")
	}
	if n := rdb.Exists(t.Context(), "leasehold:mtx:{"+name+":k}:holders").Val(); n != 0 {
		t.Error("the lock is still held")
	}
}

// No process is left: the guard ends with the tool.
func TestGuardEndsWithTheTool(t *testing.T) {
	addr, _ := server(t)
	for _, sig := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGKILL} {
		end := filepath.Join(t.TempDir(), "end") // the program waits for this file
		x := start(t, "redis://"+addr, "run", "--mutex", redistest.Name(t), "--key", "k", "--", "sh", "-c",
			`echo on; until [ -e "$0" ]; do sleep 0.02; done`, end)
		x.line()
		guard := guardOf(t, x)
		if sig != 0 {
			x.signal(sig)
		} else if err := os.WriteFile(end, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		x.code()
		redistest.Eventually(t, "the guard's end", func() bool { return !alive(guard) })
	}
}

// Without the guard the program has no protection: it does not go on.
func TestProgramEndsWithTheGuard(t *testing.T) {
	addr, _ := server(t)
	x := start(t, "redis://"+addr, "run", "--mutex", redistest.Name(t), "--key", "k", "--", "sh", "-c", "echo on; sleep 600")
	x.line()
	_ = syscall.Kill(guardOf(t, x), syscall.SIGKILL)
	if got := x.code(); got != 125 {
		t.Errorf("it ends with %d: %s", got, x.stderr.String())
	}
}
