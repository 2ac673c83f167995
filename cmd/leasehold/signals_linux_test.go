package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func holdersOf(name string) string { return "leasehold:mtx:{" + name + ":k}:holders" }

func waitsFor(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	redistest.Eventually(t, "a waiter", func() bool {
		return rdb.ZCard(t.Context(), "leasehold:mtx:{"+name+":k}:queue").Val() == 1
	})
}

// A script ignores SIGINT in its background jobs, and nohup SIGHUP: a tool that waits takes no
// notice, and its program ignores them, too.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	addr, rdb := server(t)
	url, name := "redis://"+addr, redistest.Name(t)
	holder := start(t, url, "run", "--mutex", name, "--key", "k", "--", "sh", "-c", "echo on; sleep 600")
	holder.line()
	tool := command(t, url)
	x := &wrapped{t: t, cmd: exec.Command("sh", "-c", `trap "" HUP INT QUIT; exec "$@"`, "sh", tool.Path, "run", "--mutex", name, "--key", "k", "--",
		"sh", "-c", "kill -HUP $$; kill -INT $$; kill -QUIT $$; exit 3")}
	x.cmd.Env = tool.Env
	x.start()
	waitsFor(t, rdb, name)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if err := x.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	holder.signal(syscall.SIGTERM)
	if got := x.code(); got != 3 {
		t.Errorf("it ends with %d: %s", got, x.stderr.String())
	}
}

// wrapped is a tool that something else starts.
type wrapped struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

func (x *wrapped) start() {
	x.t.Helper()
	if x.cmd.Stderr == nil {
		x.cmd.Stderr = &x.stderr
	}
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := x.cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = x.cmd.Process.Kill() })
}

func (x *wrapped) code() int {
	stuck := time.AfterFunc(time.Minute, func() { _ = x.cmd.Process.Kill() })
	defer stuck.Stop()
	_ = x.cmd.Wait()
	return x.cmd.ProcessState.ExitCode()
}

// The sweep takes longer than the lease, whose parent-less processes nobody reaps: the lease
// is renewed meanwhile, and the program's exit code counts. Nobody reads standard error.
func TestSweepThatOutlastsTheLeaseLosesNothing(t *testing.T) {
	t.Parallel()
	addr, rdb := server(t)
	name := redistest.Name(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	x := &wrapped{t: t, cmd: command(t, "redis://"+addr, "run", "--mutex", name, "--key", "k", "--ttl", "900ms", "--grace", "300ms", "--",
		"sh", "-c", `(trap "" TERM; while :; do sleep 0.05; done) >/dev/null 2>&1 & sleep 1`)}
	x.cmd.Env = append(x.cmd.Env, asTool+"="+asInit)
	x.cmd.Stderr = w
	x.start()
	_ = w.Close()
	if got := x.code(); got != 0 {
		t.Errorf("it ends with %d", got)
	}
	if rdb.Exists(t.Context(), holdersOf(name)).Val() != 0 {
		t.Error("the lock is still held")
	}
}

// Jobs of a shell have process groups of their own, and orphans other parents: all end with
// a tool that is killed, and with its guard.
func TestAllThatDescendsFromTheProgramEnds(t *testing.T) {
	t.Parallel()
	addr, _ := server(t)
	for _, killed := range []string{"tool", "guard"} {
		x := start(t, "redis://"+addr, "run", "--mutex", redistest.Name(t), "--key", "k", "--", "bash", "-c",
			`set -m; sleep 600 & job=$!; orphan=$( (trap "" TERM HUP; exec sleep 600 >/dev/null) & echo $!); echo $job $orphan $$; wait`)
		all := pids(t, x.line(), 3)
		if killed == "tool" {
			x.signal(syscall.SIGKILL)
		} else {
			_ = syscall.Kill(guardOf(t, x), syscall.SIGKILL)
			if got := x.code(); got != 125 {
				t.Errorf("without its guard it ends with %d", got)
			}
		}
		for _, pid := range all {
			redistest.Eventually(t, "the end of "+itoa(pid)+" with the "+killed, func() bool { return !alive(pid) })
		}
	}
}

// A Redis that takes connections and answers nothing holds nobody up for longer than --wait.
func TestWaitBoundsASilentRedis(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	go func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
		}
	}()
	url := "redis://" + silent.Addr().String()
	at := time.Now()
	start(t, url, "run", "--mutex", "m", "--key", "k", "--", "/no/such/program").code()
	alone := time.Since(at) // what a process costs here
	for _, wait := range []string{"0", "500ms"} {
		at := time.Now()
		x := start(t, url, "run", "--mutex", "m", "--key", "k", "--wait", wait, "--", "true")
		if got := x.code(); got != 69 || !strings.Contains(x.stderr.String(), "Redis") {
			t.Errorf("--wait %s: it ends with %d: %s", wait, got, x.stderr.String())
		}
		if took := time.Since(at); took > 2*time.Second+10*alone {
			t.Errorf("--wait %s took %v; a process alone takes %v", wait, took, alone)
		}
	}
}

// As another user the tool can't end a program of root's: it refuses one, unless that need not
// be ended, and tells of one that a script starts.
func TestProgramOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root makes programs that run as root")
	}
	addr, rdb := server(t)
	name := redistest.Name(t)
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	tool, roots := filepath.Join(dir, "tool"), filepath.Join(dir, "roots")
	for _, err := range []error{
		os.Chmod(filepath.Dir(dir), 0o755), os.WriteFile(tool, program, 0o755),
		os.WriteFile(roots, program, 0o755), os.Chmod(roots, 0o755|os.ModeSetuid),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (code int, out, errs string) {
		t.Helper()
		cmd := exec.Command(tool, append([]string{"run", "--mutex", name, "--key", "k", "--ttl", "3s"}, args...)...)
		cmd.Env = append(os.Environ(), asTool+"=1", asHelper+"=1", "REDIS_URL=redis://"+addr)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		var o, e bytes.Buffer
		cmd.Stdout, cmd.Stderr = &o, &e
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode(), o.String(), e.String()
	}
	_, out, errs := run("--lost", "warn", "--", roots)
	if !strings.Contains(out, "as 0") {
		t.Skipf("programs do not run as their owners here: %q %q", out, errs)
	}
	if code, out, errs := run("--", roots); code != 126 || out != "" || !strings.Contains(errs, "sudo leasehold run") {
		t.Errorf("a program of root's ends with %d: %q %q", code, out, errs)
	}
	if code, out, errs := run("--", "sh", "-c", roots+"; exit 4"); code != 4 || !strings.Contains(out, "as 0") || !strings.Contains(errs, "as another user") {
		t.Errorf("one in a script ends with %d: %q %q", code, out, errs)
	}
	if rdb.Exists(t.Context(), holdersOf(name)).Val() != 0 {
		t.Error("the lock is still held")
	}
}

// The helper becomes its owner for good, as sudo does, for longer than the guard takes to see it.
func init() {
	helper = func() {
		_ = syscall.Setuid(unix.Geteuid())
		fmt.Println("as", os.Getuid())
		time.Sleep(1500 * time.Millisecond)
	}
}

// With --lost warn the program goes on, and the exit code tells.
func TestLostWarnLetsTheProgramGoOn(t *testing.T) {
	t.Parallel()
	addr, rdb := server(t)
	name := redistest.Name(t)
	x := start(t, "redis://"+addr, "run", "--mutex", name, "--key", "k", "--ttl", "600ms", "--lost", "warn", "--", "sh", "-c",
		`trap "echo told" TERM; echo on; sleep 2; echo over`)
	x.line()
	rdb.Del(t.Context(), holdersOf(name))
	if line := x.line(); line != "over" {
		t.Errorf("it says %q", line)
	}
	if got := x.code(); got != 124 || !strings.Contains(x.stderr.String(), "goes on") {
		t.Errorf("it ends with %d: %s", got, x.stderr.String())
	}
}
