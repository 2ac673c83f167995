package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// write is the program of a fleet: it appends the token to the log for more than a second, and does not care for
// SIGTERM half of the time.
func write(log string) {
	token := os.Getenv("LEASEHOLD_TOKEN")
	if token[len(token)-1]%2 == 0 {
		signal.Ignore(syscall.SIGTERM)
	}
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		panic(err)
	}
	for range 60 {
		_, _ = fmt.Fprintln(f, token)
		time.Sleep(20 * time.Millisecond)
	}
}

// A fleet of tools whose programs append their tokens to a log as long as they run, while tools
// are stopped, killed, terminated and cut off from Redis, and holders are revoked.
func TestTokensInALogNeverFall(t *testing.T) {
	t.Parallel()
	rounds := 24
	if testing.Short() {
		rounds = 12
	}
	for _, lost := range []string{"term", "kill"} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			f := &fleet{
				site: s, lost: lost, proxy: redistest.NewProxy(t, s.addr), handle: s.locks(0), log: filepath.Join(t.TempDir(), "log"),
				random: rand.New(rand.NewPCG(redistest.Seed(t), 0)),
			}
			began := time.Now()
			s.run("--", "true").ends(0)
			f.ttl = min(max(time.Second, 8*time.Since(began)), 4*time.Second).Round(time.Millisecond)
			for range 4 {
				f.tools = append(f.tools, f.join())
			}
			for round := range rounds {
				f.awaitNext()
				fault := []string{"TERM", "KILL", "revoke", "STOP", "cut", "nothing"}[round%6]
				f.strike(fault)
				for i := range 2 {
					if fault == "STOP" {
						f.tools[i] = f.join()
					}
				}
				f.replace()
			}
			seen := map[uint64]bool{}
			highest := uint64(0)
			for _, token := range f.tokens() {
				redistest.CheckNow(t, token >= highest, "token %d is written after %d", token, highest)
				highest, seen[token] = token, true
			}
			redistest.CheckNow(t, len(seen) >= rounds/2, "only %d holders wrote", len(seen))
		})
	}
}

type fleet struct {
	*site
	lost   string
	ttl    time.Duration // 1 s; longer on a machine where a tool needs long to start
	proxy  *redistest.Proxy
	handle *mutex.Mutex
	log    string
	random *rand.Rand

	tools, stopped []*tool
}

func (f *fleet) join() *tool {
	return start(f.t, fmt.Sprintf("redis://%s?read_timeout=%v", f.proxy.Addr(), 3*f.ttl/10), f.args("--ttl", f.ttl.String(), "--lost", f.lost, "--", os.Args[0], "write", f.log)...)
}

// replace has a new tool join for each that has ended.
func (f *fleet) replace() {
	for i, x := range f.tools {
		select {
		case <-x.done:
			f.tools[i] = f.join()
		default:
		}
	}
}

// awaitNext waits for another holder to write. It has patience with a busy machine: each
// holder is four processes, which have less than the TTL to start. A tool that loses its lease
// before its program writes ends, and another one takes its place.
func (f *fleet) awaitNext() {
	f.t.Helper()
	highest := func() (token uint64) {
		for _, one := range f.tokens() {
			token = max(token, one)
		}
		return token
	}
	before, until := highest(), time.Now().Add(time.Minute)
	for highest() <= before {
		redistest.CheckNow(f.t, time.Now().Before(until), "no other holder writes")
		time.Sleep(5 * time.Millisecond)
		f.replace()
	}
}

// strike hits two of four, as which of them holds the lock does not show; revoking hits the holder.
func (f *fleet) strike(fault string) {
	f.random.Shuffle(len(f.tools), func(i, j int) { f.tools[i], f.tools[j] = f.tools[j], f.tools[i] })
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP}
	for _, x := range f.tools[:2] {
		if sig, ok := signals[fault]; ok {
			_ = x.cmd.Process.Signal(sig)
		}
	}
	switch fault {
	case "STOP":
		f.stopped = append(f.stopped, f.tools[:2]...)
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

func (f *fleet) revoke() {
	f.t.Helper()
	state := redistest.Must(f.handle.Inspect(f.t.Context(), "k"))(f.t)
	if !state.Held {
		return
	}
	err := f.handle.Revoke(f.t.Context(), "k", state.Holder.ID, "it is time")
	if !errors.Is(err, leasehold.ErrNoLease) { // it ended meanwhile
		redistest.WantErr(f.t, err)
	}
}

func (f *fleet) tokens() (all []uint64) {
	text, _ := os.ReadFile(f.log)
	for line := range strings.Lines(string(text)) {
		all = append(all, redistest.Must(strconv.ParseUint(strings.TrimSpace(line), 10, 64))(f.t))
	}
	return all
}

// run takes a lock that several servers decide. Neither one that takes connections and answers nothing nor one that
// is gone is in its way.
func TestRunUnderALockOfAQuorum(t *testing.T) {
	version := redistest.Newest(t)
	var servers []*redistest.Server
	var rdbs []redis.UniversalClient
	var urls []string
	for range 3 {
		s := redistest.StartServer(t, version)
		servers, rdbs, urls = append(servers, s), append(rdbs, s.Client()), append(urls, "redis://"+s.Addr())
	}
	name, file := redistest.Name(t), filepath.Join(t.TempDir(), "order")
	run := func(wait, script string) *tool {
		return start(t, "", "run", "--quorum", strings.Join(urls, ","), "--mutex", name, "--key", "k", "--wait", wait, "--", "sh", "-c", script)
	}
	run("30s", "true").ends(0) // the first lock of a family needs all servers
	servers[1].Pause()
	began := time.Now()
	run("0", "true").ends(0)
	atOnce := time.Since(began)
	run("2s", "true").ends(0)
	redistest.AtMost(t, time.Since(began), min(5*time.Second, 2*atOnce+3*time.Second/2), "two runs took %v; one alone would wait as long for what the silent server knows")
	servers[1].Resume()

	m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: name}))(t)
	defer m.Close(t.Context())
	l := redistest.Must(m.Lock(t.Context(), "k"))(t)
	waits := run("10s", "echo $LEASEHOLD_TOKEN")
	redistest.Eventually(t, "the tool waits", func() bool {
		state, err := m.Inspect(t.Context(), "k")
		return err == nil && state.Waiting == 1
	})
	servers[1].Kill()
	redistest.WantErr(t, l.Unlock())
	token := waits.line()
	redistest.Check(t, token > fmt.Sprint(l.Token()), "the program has the token %q, after %d", token, l.Token())
	waits.ends(0)
	script := "echo begin >> " + file + "; sleep 0.2; echo end >> " + file
	for _, x := range []*tool{run("10s", script), run("10s", script)} {
		x.ends(0)
	}
	redistest.Expect(t, string(redistest.Must(os.ReadFile(file))(t)), "begin\nend\nbegin\nend\n", "the programs ran beside each other: %q")
	start(t, "", "run", "--quorum", strings.Join(urls[:2], ","), "--mutex", name, "--key", "k", "--", "true").ends(64)
	start(t, "", "run", "--quorum", strings.Join(urls, ","), "--semaphore", name, "--limit", "1", "--key", "k", "--", "true").ends(64)
}
