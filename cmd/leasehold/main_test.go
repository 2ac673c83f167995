package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// asTool, set, makes the test's binary the tool itself. Without it the binary is the program of
// a test where its first argument says so.
const asTool = "LEASEHOLD_TEST_AS_TOOL"

func TestMain(m *testing.M) {
	if code, ok := run.Inner(os.Args[1:]); ok {
		os.Exit(code)
	}
	switch {
	case os.Getenv(asTool) != "":
		_ = os.Unsetenv(asTool)
		main()
	case len(os.Args) > 1 && os.Args[1] == "write":
		write(os.Args[2])
	case len(os.Args) > 1 && os.Args[1] == "become":
		become()
	default:
		redistest.MainOf(m, 6)
	}
}

// site is a server with a family of its own: a real server where tests on servers are asked
// for, else an embedded one.
type site struct {
	t               testing.TB
	rdb             *redis.Client
	addr, url, name string
}

func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{t: t, name: redistest.Name(t)}
	if os.Getenv("LEASEHOLD_REQUIRE_SERVERS") == "1" {
		s.addr = redistest.Shared(t, redistest.Newest(t)).Addr()
	} else {
		s.addr = redistest.Mini(t).Addr()
	}
	s.rdb, s.url = redis.NewClient(&redis.Options{Addr: s.addr}), "redis://"+s.addr
	t.Cleanup(func() { _ = s.rdb.Close() })
	return s
}

func (s *site) locks(ttl time.Duration) *mutex.Mutex {
	s.t.Helper()
	m := redistest.Must(mutex.New(s.rdb, mutex.Config{Name: s.name, TTL: ttl}))(s.t)
	s.t.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

func (s *site) args(more ...string) []string {
	return append([]string{"run", "--mutex", s.name, "--key", "k"}, more...)
}

// run runs a program under the lock, after flags and "--".
func (s *site) run(more ...string) *tool {
	s.t.Helper()
	return start(s.t, s.url, s.args(more...)...)
}

func (s *site) sh(script string, flags ...string) *tool {
	s.t.Helper()
	return s.run(append(flags, "--", "sh", "-c", script)...)
}

// holds runs one that holds the lock until it is ended.
func (s *site) holds(flags ...string) *tool {
	s.t.Helper()
	x := s.sh("echo on; sleep 600", flags...)
	x.says("on")
	return x
}

func (s *site) revokes(id string) *tool {
	s.t.Helper()
	return start(s.t, s.url, "revoke", "--mutex", s.name, "--key", "k", "--reason", "a test", id)
}

func (s *site) part(part string) string { return "leasehold:mtx:{" + s.name + ":k}:" + part }

func (s *site) isFree() bool { return s.rdb.Exists(s.t.Context(), s.part("holders")).Val() == 0 }

func (s *site) wantFree() {
	s.t.Helper()
	redistest.Check(s.t, s.isFree(), "the lock is still held")
}

func (s *site) awaitWaiter() {
	s.t.Helper()
	redistest.Eventually(s.t, "a waiter", func() bool { return s.rdb.ZCard(s.t.Context(), s.part("queue")).Val() == 1 })
}

// tool is the tool in a process of its own, or something that starts it.
type tool struct {
	t      testing.TB
	cmd    *exec.Cmd
	pipe   *os.File // of its standard output
	stdout *bufio.Reader
	stderr bytes.Buffer
	done   chan struct{}
}

func command(t testing.TB, url string, args ...string) *exec.Cmd {
	cmd := exec.Command(redistest.Must(os.Executable())(t), args...)
	cmd.Env = append(os.Environ(), asTool+"=1", "REDIS_URL="+url)
	return cmd
}

func start(t testing.TB, url string, args ...string) *tool {
	t.Helper()
	return started(t, command(t, url, args...))
}

// under prepares the tool as a shell starts it that runs first before.
func under(first string, cmd *exec.Cmd) *exec.Cmd {
	shell := exec.Command("sh", append([]string{"-c", first + `; exec "$@"`, "sh"}, append([]string{cmd.Path}, cmd.Args[1:]...)...)...)
	shell.Env = cmd.Env
	return shell
}

func started(t testing.TB, cmd *exec.Cmd) *tool {
	t.Helper()
	x := &tool{t: t, cmd: cmd, done: make(chan struct{})}
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if x.cmd.Stderr == nil {
		x.cmd.Stderr = &x.stderr
	}
	r, w, err := os.Pipe()
	redistest.WantErr(t, err)
	x.cmd.Stdout, x.pipe, x.stdout = w, r, bufio.NewReader(r)
	redistest.WantErr(t, x.cmd.Start())
	_ = w.Close()
	go func() { _ = x.cmd.Wait(); close(x.done) }()
	t.Cleanup(func() {
		_ = x.cmd.Process.Signal(syscall.SIGCONT)
		_ = x.cmd.Process.Kill()
		<-x.done
		_ = r.Close()
	})
	return x
}

func (x *tool) line() string {
	x.t.Helper()
	redistest.WantErr(x.t, x.pipe.SetReadDeadline(time.Now().Add(30*time.Second)))
	text, err := x.stdout.ReadString('\n')
	redistest.CheckNow(x.t, !errors.Is(err, os.ErrDeadlineExceeded), "no line comes; standard error: %s", &x.stderr)
	return strings.TrimSuffix(text, "\n")
}

func (x *tool) says(want string) {
	x.t.Helper()
	got := x.line()
	redistest.CheckNow(x.t, got == want, "%q says %q; want %q: %s", x.cmd.Args[1:], got, want, &x.stderr)
}

func (x *tool) signal(sig syscall.Signal) {
	x.t.Helper()
	redistest.WantErr(x.t, x.cmd.Process.Signal(sig))
}

// code is the exit code, or minus the signal that ended the tool.
func (x *tool) code() int {
	x.t.Helper()
	select {
	case <-x.done:
	case <-time.After(60 * time.Second):
		x.t.Fatalf("the tool goes on; standard error: %s", x.stderr.String())
	}
	status := x.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return -int(status.Signal())
	}
	return status.ExitStatus()
}

// ends waits for the exit code, and for words on standard error.
func (x *tool) ends(want int, words ...string) {
	x.t.Helper()
	got, said := x.code(), x.stderr.String()
	for _, word := range words {
		redistest.Check(x.t, strings.Contains(said, word), "%q does not say %q: %s", x.cmd.Args[1:], word, said)
	}
	redistest.Check(x.t, got == want, "%q ends with %d; want %d: %s", x.cmd.Args[1:], got, want, said)
}

// alive says whether a process runs: a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	_, behind, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(behind, "Z") && !strings.HasPrefix(behind, "X")
}

func awaitEnd(t testing.TB, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		redistest.Eventually(t, fmt.Sprint("the end of ", pid), func() bool { return !alive(pid) })
	}
}

func pids(t testing.TB, line string, n int) (all []int) {
	t.Helper()
	for _, word := range strings.Fields(line) {
		all = append(all, redistest.Must(strconv.Atoi(word))(t))
	}
	redistest.CheckNow(t, len(all) == n, "%q are not %d pids", line, n)
	return all
}

func (x *tool) guard() int {
	x.t.Helper()
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(x.cmd.Process.Pid), "-f", "run-guard").Output()
	if errors.Is(err, exec.ErrNotFound) {
		x.t.Skip("no pgrep")
	}
	redistest.WantErr(x.t, err)
	return pids(x.t, string(out), 1)[0]
}
