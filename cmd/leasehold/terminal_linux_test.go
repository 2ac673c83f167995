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

	ptys "github.com/creack/pty"
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
	master, err := ptys.StartWithAttrs(cmd, nil, &syscall.SysProcAttr{Setsid: true, Setctty: true})
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	// One that is read without blocking, so that Close hangs up.
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	redistest.WantErr(t, err)
	redistest.WantErr(t, master.Close())
	redistest.WantErr(t, unix.SetNonblock(fd, true))
	master = os.NewFile(uintptr(fd), "terminal")
	p := &pty{t: t, master: master, tool: &tool{t: t, cmd: cmd, done: make(chan struct{})}}
	go func() { _ = cmd.Wait(); close(p.tool.done) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-p.tool.done; _ = master.Close() })
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
// and the lock is still held where that took not too long. The program makes no processes of
// its own: Ctrl-Z in the moment of a vfork stops the child and leaves its parent waiting for
// it, under any shell.
func TestStoppedFromTheTerminalAndGoesOn(t *testing.T) {
	addr, _ := server(t)
	shell := exec.Command("bash", "--norc", "-i")
	tool := command(t, "redis://"+addr)
	log := filepath.Join(t.TempDir(), "log")
	shell.Env = append(tool.Env, "PS1=> ")
	p := ptyOf(t, shell)
	p.types(fmt.Sprintf("%s run --mutex %s --key k -- bash -c 'exec 3<> <(:); trap \"echo bye; exit 6\" INT; while :; do echo x >>%s; read -t 0.02 -u 3; done'\n", tool.Path, redistest.Name(t), log))
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
		p.sees("+  Stopped")
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

// shell is an interactive shell on a terminal, and a tool's command line for it.
func shell(t *testing.T, url string) (p *pty, run string) {
	t.Helper()
	tool := command(t, url)
	cmd := exec.Command("bash", "--norc", "-i")
	cmd.Env = append(tool.Env, "PS1=> ")
	return ptyOf(t, cmd), fmt.Sprintf("%s run --mutex %s --key k --ttl 1m -- ", tool.Path, redistest.Name(t))
}

// A program in a pipeline, and one in the background, gets the terminal when the shell gives
// it, and gives it back.
func TestPipelinesAndBackgroundJobsHaveTheTerminal(t *testing.T) {
	for about, c := range map[string]struct {
		line string // the rest of the command line
		stop string // what makes the shell take the terminal
	}{
		"pipeline":   {" | cat\n", "\x1a"},
		"to a file":  {" >&2 | cat\n", "\x1a"},
		"background": {" &\n", ""},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			addr, _ := server(t)
			p, run := shell(t, "redis://"+addr)
			p.types(run + "bash -c 'echo as''ks >&2; read x; echo g''ot $x' " + c.line)
			p.sees("asks")
			p.types(c.stop)
			redistest.Eventually(t, "the stop", func() bool {
				if c.stop == "" {
					p.types("\n") // the shell tells of it at its next prompt
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				return strings.Contains(p.seen.String(), "+  Stopped")
			})
			p.types("fg\nword\n")
			p.sees("got word")
			p.types("echo st''ill; exit\n")
			p.sees("still")
			p.tool.code()
		})
	}
}

// A program that no shell can give the terminal to any more ends, and with it the lock.
func TestOrphanThatWantsTheTerminalEnds(t *testing.T) {
	t.Parallel()
	addr, rdb := server(t)
	p, run := shell(t, "redis://"+addr)
	p.types("(" + run + `bash -c 'trap "" HUP; echo as''ks; read x </dev/tty; echo more; read x </dev/tty; sleep 600' &)` + "\n")
	p.sees("asks")
	name := strings.Fields(run)[3]
	redistest.Eventually(t, "the lock to be free", func() bool { return rdb.Exists(t.Context(), holdersOf(name)).Val() == 0 })
	p.types("exit\n")
	p.tool.code()
}

// A terminal that goes away, as one of ssh that is cut, ends the program and the lock.
func TestTerminalThatIsGoneEndsTheProgram(t *testing.T) {
	t.Parallel()
	addr, rdb := server(t)
	p, run := shell(t, "redis://"+addr)
	p.types(run + "bash -c 'echo as''ks; read x; read x; sleep 600'\n")
	p.sees("asks")
	_ = p.master.Close()
	name := strings.Fields(run)[3]
	redistest.Eventually(t, "the lock to be free", func() bool { return rdb.Exists(t.Context(), holdersOf(name)).Val() == 0 })
}

// The signal of Ctrl-C reaches the program once, and one to the tool alone, too.
func TestSignalOfTheTerminalComesOnce(t *testing.T) {
	t.Parallel()
	addr, _ := server(t)
	p := onTerminal(t, "redis://"+addr, "run", "--mutex", redistest.Name(t), "--key", "k", "--", "bash", "-c",
		`exec 3<> <(:); trap "echo one interrupt" INT; trap "echo user; exit 3" USR1; echo asks; while :; do read -t 0.02 -u 3; done`)
	p.sees("asks")
	p.types("\x03")
	p.sees("one interrupt")
	p.tool.signal(syscall.SIGUSR1)
	p.sees("user")
	if got := p.tool.code(); got != 3 {
		t.Errorf("it ends with %d", got)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := strings.Count(p.seen.String(), "one interrupt"); n != 1 {
		t.Errorf("the program was interrupted %d times: %q", n, p.seen.String())
	}
}

// A tool whose lease is lost ends its program, not the script that called it: all three are in
// one process group.
func TestScriptOutlivesALostLease(t *testing.T) {
	t.Parallel()
	addr, rdb := server(t)
	name := redistest.Name(t)
	tool := command(t, "redis://"+addr)
	script := exec.Command("sh", "-c", tool.Path+" run --mutex "+name+" --key k --ttl 1s -- sh -c 'echo on; sleep 600'; echo script $?")
	script.Env = tool.Env
	p := ptyOf(t, script)
	p.sees("on")
	rdb.Del(t.Context(), holdersOf(name))
	p.sees("script 124")
}
