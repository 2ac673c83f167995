package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// asTool, set, makes the test's binary the tool itself.
const (
	asTool  = "LEASEHOLD_TEST_AS_TOOL"
	asFirst = "first" // and the first process of a container
	asInit  = "init"  // a first process that starts the tool and reaps nothing else
	// asHelper, set, makes it a program that becomes another user.
	asHelper = "LEASEHOLD_TEST_AS_HELPER"
)

// adoptOrphans makes this process the parent of its descendants' orphans, as the first
// process of a container is. Only Linux can.
var adoptOrphans = func() {}

// helper is what asHelper does.
var helper = func() {}

func TestMain(m *testing.M) {
	if code, ok := inner(os.Args[1:]); ok {
		os.Exit(code)
	}
	if as := os.Getenv(asTool); as != "" {
		_ = os.Unsetenv(asTool)
		if as == asInit {
			adoptOrphans()
			cmd := exec.Command(os.Args[0], os.Args[1:]...)
			cmd.Env = append(os.Environ(), asTool+"=1")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
			_ = cmd.Run()
			os.Exit(cmd.ProcessState.ExitCode())
		}
		if as == asFirst {
			adoptOrphans()
		}
		main()
	}
	if os.Getenv(asHelper) != "" {
		helper()
		return
	}
	if dir := os.Getenv(asWriter); dir != "" {
		write(dir)
		return
	}
	redistest.Main(m)
}

// tool is the tool in a process of its own.
type tool struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr bytes.Buffer
	done   chan struct{}
}

// command prepares the tool; url is Redis.
func command(t testing.TB, url string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asTool+"=1", "REDIS_URL="+url)
	return cmd
}

func start(t testing.TB, url string, args ...string) *tool {
	t.Helper()
	return startWith(t, url, nil, args...)
}

// startWith is start with more in the environment.
func startWith(t testing.TB, url string, env []string, args ...string) *tool {
	t.Helper()
	x := &tool{t: t, cmd: command(t, url, args...), done: make(chan struct{})}
	x.cmd.Env = append(x.cmd.Env, env...)
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	x.cmd.Stderr = &x.stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	x.cmd.Stdout, x.stdout = w, bufio.NewReader(r)
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
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

// line is the next line that the program prints.
func (x *tool) line() string {
	x.t.Helper()
	got := make(chan string, 1)
	go func() {
		text, _ := x.stdout.ReadString('\n')
		got <- strings.TrimSuffix(text, "\n")
	}()
	select {
	case text := <-got:
		return text
	case <-time.After(30 * time.Second):
		x.t.Fatalf("no line comes; standard error: %s", x.stderr.String())
		return ""
	}
}

func (x *tool) signal(sig syscall.Signal) {
	x.t.Helper()
	if err := x.cmd.Process.Signal(sig); err != nil {
		x.t.Fatal(err)
	}
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

// alive says whether a process runs: a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	_, behind, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(behind, "Z") && !strings.HasPrefix(behind, "X")
}
