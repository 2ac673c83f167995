package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// pty is a terminal with a tool in its foreground, as a shell would start it.
type pty struct {
	t      *testing.T
	master *os.File
	tool   *tool

	mu   sync.Mutex
	seen bytes.Buffer
}

func onTerminal(t *testing.T, url string, args ...string) *pty {
	t.Helper()
	return ptyOf(t, command(t, url, args...))
}

// ptyOf starts a program in the foreground of a terminal of its own.
func ptyOf(t *testing.T, cmd *exec.Cmd) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	p := &pty{t: t, master: master, tool: &tool{t: t, cmd: cmd, done: make(chan struct{})}}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(p.tool.done) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-p.tool.done })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			p.mu.Lock()
			p.seen.Write(buf[:n])
			p.mu.Unlock()
			if err != nil && !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	}()
	return p
}

func (p *pty) sees(text string) {
	p.t.Helper()
	redistest.Eventually(p.t, "the terminal to show "+text, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return strings.Contains(p.seen.String(), text)
	})
}

func (p *pty) types(text string) {
	p.t.Helper()
	if _, err := p.master.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

func TestInteractiveProgramHasTheTerminal(t *testing.T) {
	addr, _ := server(t)
	p := onTerminal(t, "redis://"+addr, "run", "--mutex", redistest.Name(t), "--key", "k", "--", "sh", "-c",
		`echo ask; read x; echo "got $x"; stty -echo raw; echo waits; sleep 60`)
	p.sees("ask")
	p.types("word\n")
	p.sees("got word")
	p.sees("waits")
	// A raw terminal makes no signals: the tool gets one from elsewhere, and leaves
	// the terminal as it found it.
	p.tool.signal(syscall.SIGTERM)
	if got := p.tool.code(); got != 128+15 {
		t.Errorf("it ends with %d", got)
	}
	state, err := unix.IoctlGetTermios(int(p.master.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if state.Lflag&unix.ECHO == 0 || state.Lflag&unix.ICANON == 0 {
		t.Error("the terminal is left raw")
	}
}

func TestInterruptFromTheTerminalReachesTheProgram(t *testing.T) {
	addr, _ := server(t)
	p := onTerminal(t, "redis://"+addr, "run", "--mutex", redistest.Name(t), "--key", "k", "--", "sh", "-c",
		`trap "echo interrupted; exit 3" INT; echo on; while :; do sleep 0.02; done`)
	p.sees("on")
	p.types("\x03")
	p.sees("interrupted")
	if got := p.tool.code(); got != 3 {
		t.Errorf("it ends with %d", got)
	}
}

// Bash moves itself into the foreground, and its jobs into groups of their own:
// the program has to be the leader of its group for that.
func TestShellOnTheTerminal(t *testing.T) {
	addr, _ := server(t)
	p := onTerminal(t, "redis://"+addr, "run", "--mutex", redistest.Name(t), "--key", "k", "--", "bash", "--norc", "-i")
	p.types("echo to''ken $LEASEHOLD_KEY\n")
	p.sees("token k")
	p.types("(exit 4)\nexit\n")
	if got := p.tool.code(); got != 4 {
		t.Errorf("it ends with %d", got)
	}
}

// Ctrl-Z stops the program and gives the shell its terminal; fg lets both go on,
// and the lock is still held where that took not too long.
func TestStoppedFromTheTerminalAndGoesOn(t *testing.T) {
	addr, _ := server(t)
	shell := exec.Command("bash", "--norc", "-i")
	tool := command(t, "redis://"+addr)
	log := filepath.Join(t.TempDir(), "log")
	shell.Env = append(tool.Env, "PS1=> ")
	p := ptyOf(t, shell)
	p.types(fmt.Sprintf("%s run --mutex %s --key k -- sh -c 'trap \"echo bye; exit 6\" INT; while :; do echo x >>%s; sleep 0.02; done'\n", tool.Path, redistest.Name(t), log))
	size := func() int64 {
		info, err := os.Stat(log)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	redistest.Eventually(t, "the program", func() bool { return size() > 10 })
	for range 8 {
		p.mu.Lock()
		p.seen.Reset()
		p.mu.Unlock()
		p.types("\x1a")
		p.sees("Stopped")
		stopped := size()
		time.Sleep(150 * time.Millisecond)
		if now := size(); now != stopped {
			t.Fatalf("the stopped program wrote %d lines", (now-stopped)/2)
		}
		p.types("fg\n")
		redistest.Eventually(t, "the program again", func() bool { return size() > stopped })
	}
	p.types("\x03")
	p.sees("bye")
	p.types("echo code $?; exit\n")
	p.sees("code 6")
}
