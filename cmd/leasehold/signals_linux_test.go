package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A script ignores SIGINT in its background jobs, and nohup SIGHUP: a tool that waits takes no
// notice, and its program ignores them, too.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	holder := s.holds()
	x := started(t, under(`trap "" HUP INT QUIT`, command(t, s.url, s.args("--", "sh", "-c", "kill -HUP $$; kill -INT $$; kill -QUIT $$; exit 3")...)))
	s.awaitWaiter()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		x.signal(sig)
	}
	holder.signal(syscall.SIGTERM)
	x.ends(3)
}

// What a program leaves behind ends with the lease. To end it takes longer than the lease, which is renewed
// meanwhile, and the program's exit code counts. Nobody reads standard error.
func TestWhatAProgramLeavesBehindEndsWithTheLease(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r, w, err := os.Pipe()
	redistest.WantErr(t, err)
	_ = r.Close()
	cmd := command(t, s.url, s.args("--ttl", "2s", "--grace", "300ms", "--",
		"sh", "-c", `(trap "" TERM; while :; do sleep 0.05; done) >/dev/null 2>&1 & echo $!; sleep 2.1`)...)
	cmd.Stderr = w
	x := started(t, cmd)
	_ = w.Close()
	left := pids(t, x.line(), 1)[0]
	x.ends(0)
	redistest.Check(t, !alive(left), "a process of the program's still runs")
	s.wantFree()
}

// Jobs of a shell have process groups of their own, and orphans other parents: all end with
// a tool that is killed, as its guard does, and with its guard.
func TestAllThatDescendsFromTheProgramEnds(t *testing.T) {
	t.Parallel()
	for _, killed := range []string{"tool", "guard"} {
		x := newSite(t).run("--", "bash", "-c",
			`set -m; sleep 600 & job=$!; orphan=$( (trap "" TERM HUP; exec sleep 600 >/dev/null) & echo $!); echo $job $orphan $$; wait`)
		all := pids(t, x.line(), 3)
		guard := x.guard()
		if killed == "tool" {
			x.signal(syscall.SIGKILL)
		} else {
			_ = syscall.Kill(guard, syscall.SIGKILL)
			x.ends(125)
		}
		awaitEnd(t, append(all, guard)...)
	}
}

// A Redis that takes connections and answers nothing holds nobody up for longer than --wait.
// Nor does it hold up a command that only looks.
func TestWaitBoundsASilentRedis(t *testing.T) {
	t.Parallel()
	silent := redistest.NewProxy(t, newSite(t).addr)
	silent.Cut(false, true)
	url := "redis://" + silent.Addr()
	at := time.Now()
	start(t, url, "run", "--mutex", "m", "--key", "k", "--", "/no/such/program").code()
	alone := time.Since(at) // what a process costs here
	for args, bound := range map[string]time.Duration{
		"run --mutex m --key k --wait 0 -- true": 2 * time.Second, "run --mutex m --key k --wait 500ms -- true": 2 * time.Second,
		"ls": 12 * time.Second, "show --mutex m --key k": 12 * time.Second, "doctor": 12 * time.Second,
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			at := time.Now()
			start(t, url, strings.Fields(args)...).ends(69, "edis", "check its address")
			took := time.Since(at)
			redistest.Check(t, took <= bound+10*alone, "it took %v; a process alone takes %v", took, alone)
		})
	}
}

// become is a program that becomes its owner for good, as sudo does, for longer than the guard takes to see it.
func become() {
	_ = syscall.Setuid(syscall.Geteuid())
	fmt.Println("as", os.Getuid())
	time.Sleep(1500 * time.Millisecond)
}

// As another user the tool can't end a program of root's: it refuses one, unless that need not
// be ended, and tells of one that a script starts.
func TestProgramOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root makes programs that run as root")
	}
	s := newSite(t)
	dir := t.TempDir()
	program := redistest.Must(os.ReadFile(redistest.Must(os.Executable())(t)))(t)
	tool, roots := filepath.Join(dir, "tool"), filepath.Join(dir, "roots")
	for _, err := range []error{
		os.Chmod(filepath.Dir(dir), 0o755), os.WriteFile(tool, program, 0o755),
		os.WriteFile(roots, program, 0o755), os.Chmod(roots, 0o755|os.ModeSetuid),
	} {
		redistest.WantErr(t, err)
	}
	run := func(args ...string) (code int, out, errs string) {
		t.Helper()
		cmd := exec.Command(tool, s.args(append([]string{"--ttl", "3s"}, args...)...)...)
		cmd.Env = append(os.Environ(), asTool+"=1", "REDIS_URL="+s.url)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		var o, e bytes.Buffer
		cmd.Stdout, cmd.Stderr = &o, &e
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode(), o.String(), e.String()
	}
	_, out, errs := run("--lost", "warn", "--", roots, "become")
	if !strings.Contains(out, "as 0") {
		t.Skipf("programs do not run as their owners here: %q %q", out, errs)
	}
	if code, out, errs := run("--", roots, "become"); code != 126 || out != "" || !strings.Contains(errs, "sudo leasehold run") {
		t.Errorf("a program of root's ends with %d: %q %q", code, out, errs)
	}
	if code, out, errs := run("--", "sh", "-c", roots+" become; exit 4"); code != 4 || !strings.Contains(out, "as 0") || !strings.Contains(errs, "as another user") {
		t.Errorf("one in a script ends with %d: %q %q", code, out, errs)
	}
	s.wantFree()
}
