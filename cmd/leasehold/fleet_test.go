package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// asWriter makes the test's binary the program of a fleet; its value is the folder
// with the logs.
const asWriter = "LEASEHOLD_TEST_AS_WRITER"

// The logs of a fleet. A program appends its token to the plain log, with the time, as
// long as it runs. The fenced log refuses a token that is lower than its last.
const (
	plainLog  = "plain"
	fencedLog = "fenced"
)

// write appends the token to the logs for more than a second, and does not care for
// SIGTERM half of the time.
func write(dir string) {
	token := os.Getenv("LEASEHOLD_TOKEN")
	if token[len(token)-1]%2 == 0 {
		signal.Ignore(syscall.SIGTERM)
	}
	plain, fenced := openLog(dir, plainLog), openLog(dir, fencedLog)
	for range 60 {
		_, _ = fmt.Fprintf(plain, "%s %d\n", token, time.Now().UnixNano())
		writeFenced(fenced, token)
		time.Sleep(20 * time.Millisecond)
	}
}

func openLog(dir, name string) *os.File {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		panic(err)
	}
	return f
}

// writeFenced appends the token unless the last one is higher. The check and the
// write are one step for all writers; the file's lock ends with a writer that is
// killed. Tokens have the same number of digits, and compare as text.
func writeFenced(f *os.File, token string) {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		panic(err)
	}
	defer func() { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }()
	last := make([]byte, len(token)+1)
	if at, err := f.Seek(0, io.SeekEnd); err == nil && at > 0 {
		_, _ = f.ReadAt(last, at-int64(len(last)))
	}
	if line := token + "\n"; line >= string(last) {
		_, _ = f.WriteString(line)
	}
}

// A fleet of tools whose programs append their tokens to two logs, while tools are
// stopped, killed, terminated and cut off from Redis, and holders are revoked. The tokens
// of either log never fall.
func TestTokensInALogNeverFall(t *testing.T) {
	for _, lost := range []string{"term", "kill"} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			f := &fleet{
				site: s, lost: lost, proxy: redistest.NewProxy(t, s.addr), handle: s.locks(0), dir: t.TempDir(),
				random: rand.New(rand.NewPCG(redistest.Seed(t), 0)), revoked: map[uint64]time.Time{},
			}
			f.play()
		})
	}
}

const fleetTTL = time.Second

type fleet struct {
	*site
	lost   string
	proxy  *redistest.Proxy
	handle *mutex.Mutex
	dir    string
	random *rand.Rand

	tools   []*tool
	stopped []*tool
	revoked map[uint64]time.Time // when each token's lease had been revoked
}

func (f *fleet) join() *tool {
	cmd := command(f.t, "redis://"+f.proxy.Addr()+"?read_timeout=300ms", f.args("--ttl", fleetTTL.String(), "--lost", f.lost, "--", os.Args[0])...)
	cmd.Env = append(cmd.Env, asWriter+"="+f.dir)
	return started(f.t, cmd)
}

func (f *fleet) play() {
	rounds := 24
	if testing.Short() {
		rounds = 12
	}
	for range 4 {
		f.tools = append(f.tools, f.join())
	}
	faults := map[string]int{}
	for round := range rounds {
		f.awaitNext()
		fault := []string{"TERM", "KILL", "revoke", "STOP", "cut", "nothing"}[round%6]
		faults[fault]++
		f.strike(fault)
		for i, x := range f.tools {
			select {
			case <-x.done:
				f.tools[i] = f.join()
			default:
				if fault == "STOP" && i < 2 {
					f.tools[i] = f.join()
				}
			}
		}
	}
	different := f.judge()
	if different < rounds/2 {
		f.t.Fatalf("only %d holders wrote", different)
	}
	f.t.Logf("%d holders wrote, through %v; %d were revoked", different, faults, len(f.revoked))
}

// awaitNext waits for another holder to write. It has patience with a busy machine:
// each holder is four processes, which have less than a second to start.
func (f *fleet) awaitNext() {
	f.t.Helper()
	before, until := f.highest(), time.Now().Add(time.Minute)
	for f.highest() <= before {
		if time.Now().After(until) {
			f.t.Fatal("no other holder writes")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// strike hits two of four, as which of them holds the lock does not show; revoking
// hits the holder.
func (f *fleet) strike(fault string) {
	f.random.Shuffle(len(f.tools), func(i, j int) { f.tools[i], f.tools[j] = f.tools[j], f.tools[i] })
	for _, x := range f.tools[:2] {
		switch fault {
		case "TERM":
			_ = x.cmd.Process.Signal(syscall.SIGTERM)
		case "KILL":
			_ = x.cmd.Process.Signal(syscall.SIGKILL)
		case "STOP":
			_ = x.cmd.Process.Signal(syscall.SIGSTOP)
			f.stopped = append(f.stopped, x)
		}
	}
	switch fault {
	case "revoke":
		for range 1 + f.random.IntN(3) {
			time.Sleep(time.Duration(f.random.IntN(150)) * time.Millisecond)
			f.revoke()
		}
	case "cut":
		f.proxy.Cut(true, true)
		time.Sleep(time.Duration(200+f.random.IntN(1200)) * time.Millisecond)
		f.proxy.Heal()
	case "nothing":
		for _, x := range f.stopped {
			_ = x.cmd.Process.Signal(syscall.SIGCONT)
		}
		f.stopped = nil
	}
}

// revoke takes the lock away from its holder, by the package or by the command.
func (f *fleet) revoke() {
	f.t.Helper()
	before := redistest.Must(f.handle.Inspect(f.t.Context(), "k"))(f.t)
	after := redistest.Must(f.handle.Inspect(f.t.Context(), "k"))(f.t)
	// Between two looks that show the same token nothing was granted: it is the
	// holder's.
	if !before.Held || !after.Held || before.LastToken != after.LastToken || before.Holder.ID != after.Holder.ID {
		return
	}
	id := after.Holder.ID
	var err error
	if f.random.IntN(2) == 0 {
		err = f.handle.Revoke(f.t.Context(), "k", id, "it is time")
	} else if x := f.revokes(id); x.code() == 1 {
		err = leasehold.ErrNoLease
	} else if x.code() != 0 {
		f.t.Fatalf("revoke ends with %d: %s", x.code(), x.stderr.String())
	}
	switch {
	case err == nil:
		f.revoked[after.LastToken] = time.Now()
	case !errors.Is(err, leasehold.ErrNoLease): // it ended meanwhile
		f.t.Fatal(err)
	}
}

// entry is a line of the plain log.
type entry struct {
	token uint64
	at    time.Time
}

func (f *fleet) plain() (all []entry) {
	text, _ := os.ReadFile(filepath.Join(f.dir, plainLog))
	for line := range strings.Lines(string(text)) {
		var token uint64
		var ns int64
		if _, err := fmt.Sscanf(line, "%d %d\n", &token, &ns); err != nil {
			f.t.Fatalf("the log has %q", line)
		}
		all = append(all, entry{token, time.Unix(0, ns)})
	}
	return all
}

// highest is the highest token that was written.
func (f *fleet) highest() (token uint64) {
	for _, e := range f.plain() {
		token = max(token, e.token)
	}
	return token
}

// judge fails where the token of one of the logs falls, and says how many holders wrote.
func (f *fleet) judge() (holders int) {
	seen := map[uint64]bool{}
	var highest uint64
	for _, e := range f.plain() {
		seen[e.token] = true
		if highest = max(highest, e.token); e.token != highest {
			f.t.Fatalf("token %d is written after %d; it was revoked %v before", e.token, highest, e.at.Sub(f.revoked[e.token]))
		}
	}
	text := redistest.Must(os.ReadFile(filepath.Join(f.dir, fencedLog)))(f.t)
	last := ""
	for line := range strings.Lines(string(text)) {
		if line < last {
			f.t.Fatalf("in the fenced log the token falls from %q to %q", last, line)
		}
		last = line
	}
	return len(seen)
}
