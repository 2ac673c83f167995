package main

import (
	"bytes"
	"fmt"
	"io"
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
		"run --mutex m --key k --wait 0 -- true": 2 * time.Second, "run --mutex m --key k --wait 500ms -- true": 3 * time.Second / 2,
		"ls": 8 * time.Second, "show --mutex m --key k": 8 * time.Second, "doctor": 8 * time.Second,
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			at := time.Now()
			start(t, url, strings.Fields(args)...).ends(69, "edis", "check its address")
			redistest.AtMost(t, time.Since(at), bound+10*alone, "a process alone takes %v; it took %v", alone)
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
	if _, out, errs := run("--lost", "warn", "--", roots, "become"); !strings.Contains(out, "as 0") {
		t.Skipf("programs do not run as their owners here: %q %q", out, errs)
	}
	code, out, errs := run("--", roots, "become")
	redistest.Check(t, code == 126 && out == "" && strings.Contains(errs, "sudo leasehold run"), "a program of root's ends with %d: %q %q", code, out, errs)
	code, out, errs = run("--", "sh", "-c", roots+" become; exit 4")
	redistest.Check(t, code == 4 && strings.Contains(out, "as 0") && strings.Contains(errs, "as another user"), "one in a script ends with %d: %q %q", code, out, errs)
	s.wantFree()
}

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
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.tool.done
		_ = master.Close()
		if t.Failed() {
			p.mu.Lock()
			t.Logf("the terminal showed %q", p.seen.String())
			p.mu.Unlock()
		}
	})
	go func() { _, _ = io.Copy(p, master) }()
	return p
}

// Write takes down what the terminal shows.
func (p *pty) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.Write(text)
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
	script := exec.Command("sh", "-c", tool.Path+" "+strings.Join(s.args("--ttl", "3s", "--", "sh", "-c", "'echo on; sleep 600'"), " ")+"; echo script $?")
	script.Env = tool.Env
	p := ptyOf(t, script)
	p.sees("on")
	s.rdb.Del(t.Context(), s.part("holders"))
	p.sees("script 124")
}
