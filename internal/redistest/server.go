package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startTimeout bounds the wait for a server to answer. It takes some 30 ms;
// the rest is for machines that are busy with other tests.
const startTimeout = 20 * time.Second

// Server is a real server that runs as a child of the test process, in a
// folder of its own, on a free port of 127.0.0.1.
type Server struct {
	Version Version

	tb testing.TB // of the test that this handle was made for
	*instance
}

// instance is the server itself. Shared ones have many handles.
type instance struct {
	version Version
	dir     string
	args    []string
	env     []string // beside this process's own
	port    int
	bare    bool // started with args alone, port and all
	shared  bool

	mu   sync.Mutex
	proc *process // nil after Kill
}

// StartServer starts a server for this test alone and stops it at its end. It keeps nothing on disk unless
// args (as on the command line, without the port) say otherwise: "--appendonly", "yes".
func StartServer(tb testing.TB, v Version, args ...string) *Server {
	tb.Helper()
	return own(tb, "a server", v, func(v Version) (*instance, error) { return startInstance(v, args...) }).handle(tb)
}

func (in *instance) handle(tb testing.TB) *Server {
	return &Server{Version: in.version, tb: tb, instance: in}
}

// Addr is the address for clients: an IP address and a port.
func (in *instance) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(in.port)) }

// Dir is the folder in which the server keeps its files.
func (in *instance) Dir() string { return in.dir }

// Client makes a client that is closed at the end of the test.
func (s *Server) Client(mod ...func(*redis.Options)) *redis.Client {
	return newClient(s.tb, s.Addr(), mod)
}

func newClient(tb testing.TB, addr string, mod []func(*redis.Options)) *redis.Client {
	opt := &redis.Options{Addr: addr}
	for _, m := range mod {
		m(opt)
	}
	rdb := redis.NewClient(opt)
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Kill ends the server as a crash would (SIGKILL) and returns when it is gone.
func (s *Server) Kill() {
	s.tb.Helper()
	if s.mine("Kill") {
		s.kill()
	}
}

// Pause stops the server's process (SIGSTOP): its connections stay open, and nothing is answered until Resume.
func (s *Server) Pause() {
	s.tb.Helper()
	s.signal("Pause", (*process).pause)
}

func (s *Server) Resume() {
	s.tb.Helper()
	s.signal("Resume", (*process).resume)
}

// Restart starts the server again on its port, in its folder and with its
// arguments, after a Kill if it still runs. What it had kept on disk is there.
func (s *Server) Restart() {
	s.tb.Helper()
	if !s.mine("Restart") {
		return
	}
	s.kill()
	// Somebody else may sit on the port for a moment, so it is tried for a while.
	var err error
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = s.launch(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	Expect(s.tb, err, nil, "restart %s: %v", s.Version)
}

func (s *Server) mine(op string) bool {
	s.tb.Helper()
	Check(s.tb, !s.shared, "%s of a shared server: start one of your own", op)
	return !s.shared
}

func (s *Server) signal(op string, send func(*process) error) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.mine(op):
	case s.proc == nil:
		s.tb.Errorf("%s %s: it doesn't run", op, s.Version)
	default:
		Expect(s.tb, send(s.proc), nil, "%s %s: %v", op, s.Version)
	}
}

func startInstance(v Version, args ...string) (*instance, error) {
	return startInstanceWith(v, nil, args...)
}

// newFolder makes a folder for a server: in memory where there is room, unless TMPDIR says
// where. On a disk, a server that writes something through waits for whatever else is
// written there: a node of a Cluster does so before it votes.
func newFolder(name string) (string, error) {
	where := ""
	if os.Getenv("TMPDIR") == "" {
		where = memoryFolder()
	}
	return os.MkdirTemp(where, "leasehold-"+name+"-")
}

func startInstanceWith(v Version, env []string, args ...string) (*instance, error) {
	dir, err := newFolder(v.Name)
	in := &instance{version: v, dir: dir, args: args, env: env}
	if err != nil {
		return in, err
	}
	return in, onFreePort(func() error { in.port = freePort(); return in.launch() })
}

func (in *instance) servers() []*instance { return []*instance{in} }

// onFreePort tries to start something until no port that it chose was taken meanwhile.
func onFreePort(start func() error) (err error) {
	for range 20 {
		if err = start(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	return err
}

// freePort looks below the range from which systems give ports to outgoing connections, of which tests have
// thousands, and where port+10000, the Cluster bus, is below it too. The draw is random since the test
// processes of several packages draw at the same time.
//
// The port is this process's until release, also while its server is killed: the other nodes of a Cluster still call
// there, and would take the addresses of another Cluster for their own, and that one theirs.
func freePort() int {
	for {
		port := 11000 + rand.IntN(10000)
		held, err := reserve(port)
		if err != nil {
			continue
		}
		if isFree(port) && isFree(port+10000) {
			reserved.Store(port, held)
			return port
		}
		_ = held.Close()
	}
}

var reserved sync.Map // port → io.Closer

func release(port int) {
	if held, ok := reserved.LoadAndDelete(port); ok {
		_ = held.(io.Closer).Close()
	}
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

var errPortTaken = errors.New("port is taken")

// launch starts the process and waits until it answers.
func (in *instance) launch() error {
	log, err := os.Create(in.logPath())
	if err != nil {
		return err
	}
	defer log.Close()
	args := in.args
	if !in.bare {
		// Of an option that is given twice the last counts: in.args can override.
		args = append([]string{
			"--port", strconv.Itoa(in.port), "--bind", "127.0.0.1", "--dir", in.dir,
			"--save", "", "--appendonly", "no",
		}, args...)
	}
	cmd := exec.Command(in.version.path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = in.dir, log, log
	cmd.Env = append(os.Environ(), in.env...)
	proc, err := startProcess(cmd)
	if err != nil {
		return err
	}

	for deadline := time.Now().Add(startTimeout); !in.answers(proc.pid()); time.Sleep(2 * time.Millisecond) {
		if late := time.Now().After(deadline); late || proc.ended() {
			proc.kill()
			said, _ := os.ReadFile(in.logPath())
			if strings.Contains(string(said), "Address already in use") {
				return errPortTaken
			}
			return fmt.Errorf("it does not answer (late: %v): %s", late, tail(said))
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.proc = proc
	return nil
}

// answers reports whether the process pid, and not another server that got the port first, answers. While it loads
// its files it answers INFO, and not PING.
func (in *instance) answers(pid int) bool {
	rdb := in.client(time.Second)
	defer rdb.Close()
	ctx := context.Background()
	text, err := rdb.Info(ctx, "server").Result()
	if err != nil {
		return strings.Contains(err.Error(), "NOAUTH")
	}
	return strings.Contains(text, fmt.Sprintf("process_id:%d\r\n", pid)) && rdb.Ping(ctx).Err() == nil
}

func (in *instance) kill() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.proc != nil {
		in.proc.kill()
		in.proc = nil
	}
}

func (in *instance) running() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.proc != nil && !in.proc.ended()
}

// stop says what a server wrote that has ended by itself: a test sees no more of that than a refused connection.
func (in *instance) stop() {
	in.mu.Lock()
	if in.proc != nil && in.proc.ended() {
		said, _ := os.ReadFile(in.logPath())
		_, report, crashed := strings.Cut(string(said), "REPORT START") // it ends with all of INFO
		if !crashed {
			report = tail(said)
		}
		fmt.Fprintf(os.Stderr, "%s on port %d has ended by itself, %v: %.4000s\n", in.version, in.port, in.proc.cmd.ProcessState, report)
	}
	in.mu.Unlock()
	in.kill()
	release(in.port)
	_ = os.RemoveAll(in.dir)
}

func (in *instance) logPath() string { return filepath.Join(in.dir, "server.log") }

// tail is the end of a server's log, for an error message.
func tail(log []byte) string {
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-6):], " | ")
}

// Commandstats says how often each command ran on a real server since its start or its last CONFIG RESETSTAT,
// by lower-case name, those that scripts call included. On a server that other tests use, only the difference
// of two such counts of a rare command means anything.
func Commandstats(tb testing.TB, rdb redis.Cmdable) map[string]int64 {
	tb.Helper()
	text, err := rdb.Info(tb.Context(), "commandstats").Result()
	CheckNow(tb, err == nil, "commandstats: %v", err)
	calls := map[string]int64{}
	for line := range strings.Lines(text) {
		// cmdstat_evalsha:calls=2,usec=…
		line, ok := strings.CutPrefix(line, "cmdstat_")
		if !ok {
			continue
		}
		name, figures, _ := strings.Cut(line, ":calls=")
		number, _, _ := strings.Cut(figures, ",")
		n, err := strconv.ParseInt(number, 10, 64)
		CheckNow(tb, err == nil, "commandstats: line %q: %v", line, err)
		calls[name] = n
	}
	return calls
}
