package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
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

// onTerminal runs a program under the lock of a site of its own.
func onTerminal(t *testing.T, program ...string) *pty {
	t.Helper()
	s := newSite(t)
	return ptyOf(t, command(t, s.url, s.args(append([]string{"--"}, program...)...)...))
}

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

func (p *pty) count(text string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.seen.String(), text)
}

func (p *pty) sees(text string) {
	p.t.Helper()
	redistest.Eventually(p.t, "the terminal to show "+text, func() bool { return p.count(text) > 0 })
}

func (p *pty) types(text string) {
	p.t.Helper()
	redistest.Must(p.master.WriteString(text))(p.t)
}

func TestInteractiveProgramHasTheTerminal(t *testing.T) {
	p := onTerminal(t, "sh", "-c",
		`echo ask; read x; echo "got $x"; stty -echo raw; echo waits; sleep 60`)
	p.sees("ask")
	p.types("word\n")
	p.sees("got word")
	p.sees("waits")
	// A raw terminal makes no signals: the tool gets one from elsewhere, and leaves the terminal as it found it.
	p.tool.signal(syscall.SIGTERM)
	p.tool.ends(128 + 15)
	state := redistest.Must(unix.IoctlGetTermios(int(p.master.Fd()), unix.TCGETS))(t)
	redistest.Check(t, state.Lflag&unix.ECHO != 0 && state.Lflag&unix.ICANON != 0, "the terminal is left raw")
}

// Bash moves itself into the foreground, and its jobs into groups of their own:
// the program has to be the leader of its group for that.
func TestShellOnTheTerminal(t *testing.T) {
	p := onTerminal(t, "bash", "--norc", "-i")
	p.types("echo to''ken $LEASEHOLD_KEY\n")
	p.sees("token k")
	p.types("(exit 4)\nexit\n")
	p.tool.ends(4)
}

// Ctrl-Z stops the program and gives the shell its terminal; fg lets both go on, and the lock is still held where
// that took not too long. The program makes no processes of its own: Ctrl-Z in the moment of a vfork stops the
// child and leaves its parent waiting for it, under any shell.
func TestStoppedFromTheTerminalAndGoesOn(t *testing.T) {
	_, p, run := shell(t)
	log := filepath.Join(t.TempDir(), "log")
	p.types(fmt.Sprintf("%s bash -c 'exec 3<> <(:); trap \"echo bye; exit 6\" INT; while :; do echo x >>%s; read -t 0.02 -u 3; done'\n", run, log))
	size := func() int64 {
		info, err := os.Stat(log)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	redistest.Eventually(t, "the program", func() bool { return size() > 10 })
	for range 8 {
		stops := p.count("+  Stopped")
		p.types("\x1a")
		redistest.Eventually(t, "the stop", func() bool { return p.count("+  Stopped") > stops })
		stopped := size()
		time.Sleep(150 * time.Millisecond)
		now := size()
		redistest.CheckNow(t, now == stopped, "the stopped program wrote %d lines", (now-stopped)/2)
		p.types("fg\n")
		redistest.Eventually(t, "the program again", func() bool { return size() > stopped })
	}
	p.types("\x03")
	p.sees("bye")
	p.types("echo code $?; exit\n")
	p.sees("code 6")
}

func shell(t *testing.T) (s *site, p *pty, run string) {
	t.Helper()
	s = newSite(t)
	tool := command(t, s.url)
	cmd := exec.Command("bash", "--norc", "-i")
	cmd.Env = append(tool.Env, "PS1=> ")
	return s, ptyOf(t, cmd), tool.Path + " " + strings.Join(s.args("--ttl", "1m", "--", ""), " ")
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
			_, p, run := shell(t)
			p.types(run + "bash -c 'echo as''ks >&2; read x; echo g''ot $x' " + c.line)
			p.sees("asks")
			p.types(c.stop)
			redistest.Eventually(t, "the stop", func() bool {
				if c.stop == "" {
					p.types("\n") // the shell tells of it at its next prompt
				}
				return p.count("+  Stopped") > 0
			})
			p.types("fg\nword\n")
			p.sees("got word")
			p.types("echo st''ill; exit\n")
			p.sees("still")
			<-p.tool.done
		})
	}
}

// A program that no shell can give the terminal to any more ends, and with it the lock.
func TestOrphanThatWantsTheTerminalEnds(t *testing.T) {
	t.Parallel()
	s, p, run := shell(t)
	p.types("(" + run + `bash -c 'trap "" HUP; echo as''ks; read x </dev/tty; echo more; read x </dev/tty; sleep 600' &)` + "\n")
	p.sees("asks")
	redistest.Eventually(t, "the lock to be free", s.isFree)
	p.types("exit\n")
	<-p.tool.done
}

// A terminal that goes away, as one of ssh that is cut, ends the program and the lock.
func TestTerminalThatIsGoneEndsTheProgram(t *testing.T) {
	t.Parallel()
	if signal.Ignored(syscall.SIGHUP) { // nohup does that
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // what is started from here on does not ignore it
	}
	s, p, run := shell(t)
	p.types(run + "bash -c 'echo as''ks; read x; read x; sleep 600'\n")
	p.sees("asks")
	_ = p.master.Close()
	redistest.Eventually(t, "the lock to be free", s.isFree)
}

// The signal of Ctrl-C reaches the program once, and one to the tool alone, too.
func TestSignalOfTheTerminalComesOnce(t *testing.T) {
	t.Parallel()
	p := onTerminal(t, "bash", "-c",
		`exec 3<> <(:); trap "echo one interrupt" INT; trap "echo user; exit 3" USR1; echo asks; while :; do read -t 0.02 -u 3; done`)
	p.sees("asks")
	p.types("\x03")
	p.sees("one interrupt")
	p.tool.signal(syscall.SIGUSR1)
	p.sees("user")
	p.tool.ends(3)
	redistest.Expect(t, p.count("one interrupt"), 1, "the program was interrupted %d times")
}

// A tool whose lease is lost ends its program, not the script that called it: all three are in one process group.
func TestScriptOutlivesALostLease(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	tool := command(t, s.url)
	script := exec.Command("sh", "-c", tool.Path+" "+strings.Join(s.args("--ttl", "1s", "--", "sh", "-c", "'echo on; sleep 600'"), " ")+"; echo script $?")
	script.Env = tool.Env
	p := ptyOf(t, script)
	p.sees("on")
	s.rdb.Del(t.Context(), s.part("holders"))
	p.sees("script 124")
}
