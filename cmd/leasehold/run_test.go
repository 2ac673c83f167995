package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestExitCodes(t *testing.T) {
	s := newSite(t)
	busy := s.holds()
	const hostile = "\x1b[2J"
	defer redistest.Must(s.locks(time.Minute).Lock(t.Context(), hostile))(t).Unlock()
	// A permit of run is none of a family of that name with a total: docs/run.md says so.
	total := redistest.Must(semaphore.New(s.rdb, semaphore.Config{Name: s.name, Limit: 1, Total: 1}))(t)
	defer total.Close(t.Context())
	defer redistest.Must(total.TryAcquire(t.Context(), "k"))(t).Release()
	plain, empty := filepath.Join(t.TempDir(), "plain"), filepath.Join(t.TempDir(), "empty")
	redistest.WantErr(t, os.WriteFile(plain, []byte("no program"), 0o644))
	redistest.WantErr(t, os.WriteFile(empty, []byte("\n"), 0o600))
	of := func(key string, more ...string) []string {
		return append([]string{"run", "--mutex", s.name, "--key", key}, more...)
	}
	permit := func(more ...string) []string {
		return append([]string{"run", "--semaphore", s.name, "--key", "k"}, more...)
	}
	cases := map[string]struct {
		args []string
		code int
	}{
		"the program's own": {of("a", "--", "sh", "-c", "exit 7"), 7},
		"success":           {of("b", "--", "true"), 0},
		"a signal":          {of("c", "--", "sh", "-c", "kill -KILL $$"), 137},
		// It would be waited for until the grace is over.
		"an orphan that has ended":   {of("d", "--ttl", "10m", "--grace", "2m", "--", "sh", "-c", "(sh -c : &); sleep 0.3; exit 3"), 3},
		"a permit":                   {permit("--limit", "1", "--wait", "0", "--", "sh", "-c", "exit 3"), 3},
		"busy":                       {s.args("--wait", "0", "--", "true"), 75},
		"busy, and that's fine":      {s.args("--wait", "0", "--conflict-exit-code", "0", "--", "true"), 0},
		"busy, with another code":    {s.args("--wait", "0", "--conflict-exit-code", "9", "--", "true"), 9},
		"not found":                  {s.args("--", "no-such-program-here"), 127},
		"not found, by path":         {s.args("--", "/no/such/program"), 127},
		"can't be run":               {s.args("--", plain), 126},
		"Redis is away":              {s.args("--redis", "redis://127.0.0.1:1", "--", "true"), 69},
		"Redis is away for a while":  {s.args("--redis", "redis://127.0.0.1:1", "--wait", "300ms", "--conflict-exit-code", "0", "--", "true"), 69},
		"no program":                 {s.args(), 64},
		"no key":                     {[]string{"run", "--mutex", s.name, "--", "true"}, 64},
		"no family":                  {[]string{"run", "--key", "k", "--", "true"}, 64},
		"both":                       {s.args("--semaphore", "x", "--", "true"), 64},
		"no limit":                   {permit("--", "true"), 64},
		"a grace beyond the third":   {s.args("--ttl", "30s", "--grace", "11s", "--", "true"), 64},
		"a short ttl":                {s.args("--ttl", "99ms", "--", "true"), 64},
		"a flag that does not exist": {s.args("--nope", "--", "true"), 64},
		"a bad URL":                  {s.args("--redis", "http://localhost", "--", "true"), 64},
		"a command that is none":     {[]string{"runn"}, 64},
		"an empty URL of a quorum":   {s.args("--quorum", "redis://127.0.0.1:1,,redis://127.0.0.1:1", "--wait", "0", "--", "true"), 64},
		"an empty slot":              {s.args("--once", "", "--keep", "1h", "--", "true"), 64},
		"a slot without keep":        {s.args("--once", "s", "--", "true"), 64},
		"a short keep":               {s.args("--once", "s", "--keep", "999ms", "--", "true"), 64},
		"keep without a slot":        {s.args("--keep", "1h", "--", "true"), 64},
		"a slot of permits":          {permit("--limit", "2", "--once", "s", "--keep", "1h", "--", "true"), 64},
		"a quorum without a URL":     {of("q", "--quorum", "", "--", "true"), 64},
		"the same, of doctor":        {[]string{"doctor", "--quorum", ""}, 64},
		"a wait without a time":      {of("w", "--wait", "", "--", "true"), 64},
		"a program without a name":   {s.args("--", ""), 64},
		"busy, with a hostile key":   {of(hostile, "--wait", "0", "--conflict-exit-code", "0", "--", "true"), 0},
		"a negative time":            {[]string{"ls", "--held-longer", "-5s"}, 64},
		"a URL as a value":           {[]string{"ls", "--sort", "redis://:S3cr3t\"@h"}, 64},
		"a URL with blanks":          {[]string{"ls", "a", "redis://:S3cr3t  x\t@h"}, 64},
		"a command with blanks":      {[]string{"redis://:S3cr3t  x\t@h"}, 64},
		"a URL of a misspelt flag":   {[]string{"--redi=redis://:S3cr3t@h", "ls"}, 64},
	}
	t.Run("codes", func(t *testing.T) {
		for about, c := range cases {
			t.Run(about, func(t *testing.T) {
				t.Parallel()
				x := start(t, s.url, c.args...)
				code, said := x.code(), x.stderr.String()
				redistest.Check(t, code == c.code && !strings.Contains(said, "S3c") && !strings.Contains(said, "\x1b") && !strings.Contains(said, `\x09`) && !strings.Contains(said, "left processes behind"),
					"exit code %d, want %d; standard error: %s", code, c.code, said)
			})
		}
	})
	s.run("--wait", "1s", "--", "true").ends(75, "mutex "+s.name+"/k was not free in time", "the program did not run", "leasehold show --mutex "+s.name+" --key k")
	s.run("--wait", "0", "--conflict-exit-code", "0", "--", "true").ends(0, "leasehold: mutex "+s.name+"/k was not free")
	start(t, "", "ls", "--redis", "redis://127.0.0.1:1").ends(69, "127.0.0.1:1: connect") // an address is no secret
	for file, why := range map[string]string{empty: "has no token", "": "can't be read"} {
		start(t, s.url, "serve", "--listen", "127.0.0.1:0", "--token-file", file).ends(64, "--token-file "+why)
	}
	busy.signal(syscall.SIGTERM)
	busy.ends(128 + 15)
	for _, key := range []string{"a", "b", "c", "k"} {
		redistest.Check(t, s.rdb.Exists(t.Context(), "leasehold:mtx:{"+s.name+":"+key+"}:holders").Val() == 0,
			"the lock of %q is still held", key)
	}
}

func TestProgramGetsKeyTokenInputAndArguments(t *testing.T) {
	s := newSite(t)
	run := func(args ...string) string {
		t.Helper()
		cmd := command(t, s.url, append([]string{"run"}, args...)...)
		cmd.Env = append(cmd.Env, "LEASEHOLD_TOKEN=1", "LEASEHOLD_KEY=of another run")
		cmd.Stdin = strings.NewReader("input\n")
		return strings.TrimSpace(string(redistest.Must(cmd.Output())(t)))
	}
	script := `read x; echo "$x|$LEASEHOLD_KEY|$LEASEHOLD_TOKEN|$0|$1"`
	words := strings.Split(run("--mutex", s.name, "--key", "a b", "--", "sh", "-c", script, "zero", "--wait"), "|")
	redistest.CheckNow(t, len(words) == 5 && words[0] == "input" && words[1] == "a b" && words[3] == "zero" && words[4] == "--wait",
		"the program sees %q", words)
	redistest.AtLeast(t, redistest.Must(strconv.ParseUint(words[2], 10, 64))(t), 1e15, "its token is %d")
	got := run("--semaphore", s.name, "--limit", "1", "--key", "k", "--", "sh", "-c", script)
	redistest.CheckNow(t, got == "input|k||sh|", "under a permit it sees %q", got)

	// The guard passes the arguments on, and what it is told itself does not bound them.
	words = append([]string{"caf\xe9", "", "<&>\u2028", "a\nb"}, slices.Repeat([]string{strings.Repeat("x", 100)}, 2000)...)
	printed, err := command(t, s.url, s.args(append([]string{"--", "printf", `%s\n`}, words...)...)...).Output()
	redistest.Check(t, err == nil && string(printed) == strings.Join(words, "\n")+"\n", "of %d arguments the program gets %d bytes: %.60q, %v", len(words), len(printed), printed, err)
}

// group is a program with a child of its own that outlives signals to itself; it prints the pids of both.
const group = `(trap "" TERM HUP; while :; do sleep 0.05; done) & echo $! $$; wait`

// A tool that is stopped renews nothing: the next holder gets the lock at its
// end, and by then the program is gone.
func TestStoppedToolsProgramEndsBeforeTheLease(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"term", "kill"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			x := s.sh(group, "--ttl", "4s", "--lost", how)
			all := pids(t, x.line(), 2)
			x.signal(syscall.SIGSTOP)
			next := s.sh(fmt.Sprintf("for p in %d %d; do kill -0 $p 2>/dev/null && ps -o stat= -p $p; done; echo over", all[0], all[1]))
			for line := next.line(); line != "over"; line = next.line() {
				// A zombie is what the stopped tool has not reaped.
				redistest.CheckNow(t, strings.HasPrefix(line, "Z"), "the next holder sees the program, in state %q", line)
			}
			x.signal(syscall.SIGCONT)
			x.ends(124)
		})
	}
}

func TestCutNetworkStopsTheProgramInTime(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := redistest.NewProxy(t, s.addr)
	x := s.sh(`trap "echo told" TERM; echo on; while :; do sleep 0.02; done`, "--redis", "redis://"+p.Addr(), "--ttl", "3s", "--grace", "1s")
	x.says("on")
	p.Cut(true, true)
	x.says("told")
	redistest.Check(t, s.rdb.PTTL(t.Context(), s.part("holders")).Val() > 0, "SIGTERM came after the lease's end")
	p.Heal() // a renewal gives a program that was told to stop no more time
	x.ends(124)
}

// A tool that is ended while it waits runs nothing.
func TestSignalWhileWaitingLeavesNoWaiter(t *testing.T) {
	s := newSite(t)
	s.holds()
	for sig, code := range map[syscall.Signal]int{
		syscall.SIGTERM: -15, syscall.SIGINT: -2, syscall.SIGHUP: -1,
		syscall.SIGQUIT: 131, // it dies of none, because the runtime would write all stacks
	} {
		x := s.run("--", "true")
		s.awaitWaiter()
		x.signal(sig)
		x.ends(code, "came before the program was started")
		redistest.Check(t, !strings.Contains(x.stderr.String(), "goroutine"), "%v writes stacks: %s", sig, &x.stderr)
		redistest.Expect(t, s.rdb.ZCard(t.Context(), s.part("queue")).Val(), 0, "after %v %d wait", sig)
	}
	// A tool ends the same way after its place was revoked as after its lease was lost.
	x := s.run("--", "echo", "on")
	s.awaitWaiter()
	s.revokes(redistest.Must(s.locks(0).Inspect(t.Context(), "k"))(t).Waiters[0].ID).ends(0)
	x.ends(124)
	x.says("")
}

// A signal that comes while the tool has the lock, and waits for the audit stream, leaves no lease behind.
func TestSignalAfterTheGrantLeavesNoLease(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	way := redistest.NewProxy(t, s.addr)
	look := way.HoldReply(redistest.Named("XREVRANGE"), 1)
	x := start(t, "redis://"+way.Addr(), s.args("--", "true")...)
	look.Wait()
	x.signal(syscall.SIGTERM)
	x.ends(-15, "it did not run")
	s.wantFree()
}

// Before the program starts, the tool needs one connection for its calls and one for messages, so that --wait 0 works
// over a long way, too.
func TestFewRoundTripsUntilTheProgramStarts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	way := redistest.NewProxy(t, s.addr)
	start(t, "redis://"+way.Addr(), s.args("--wait", "0", "--", "true")...).ends(0)
	all := way.Commands()
	redistest.Check(t, all["CLIENT"] == 0 && all["HELLO"] > 0 && all["HELLO"] <= 3, "%v", all) // one hello asks whether it is a Cluster
}

// A signal goes to the program alone: it decides about its children.
func TestSignalsArePassedToTheProgramAlone(t *testing.T) {
	x := newSite(t).sh(`trap "echo program" USR1; trap 'echo bye; kill $!; wait; exit 5' TERM
		 sh -c 'trap "echo child; exit" USR1 TERM; echo ready; while :; do sleep 0.02; done' &
		 while :; do wait; done`)
	x.says("ready")
	x.signal(syscall.SIGUSR1)
	x.says("program")
	x.signal(syscall.SIGTERM)
	x.says("bye")
	x.says("child")
	x.ends(5)
}

func TestProgramRunsOncePerSlot(t *testing.T) {
	s, file := newSite(t), filepath.Join(t.TempDir(), "runs")
	begin := func(slot, script string) *tool {
		return s.sh("echo "+slot+" >> "+file+"; "+script, "--once", slot, "--keep", "1h")
	}
	// wantRuns is called when no program runs.
	wantRuns := func(slot string, want int) {
		t.Helper()
		n := strings.Count(string(redistest.Must(os.ReadFile(file))(t)), slot+"\n")
		redistest.Check(t, n == want, "the program ran %d times for slot %q; want %d", n, slot, want)
	}
	begin("in-turn", "exit 3").ends(3) // fails, and leaves the slot open
	begin("in-turn", "exit 0").ends(0)
	begin("in-turn", "exit 0").ends(0)
	wantRuns("in-turn", 2)

	// Several hosts at once: the others wait for the first.
	for _, host := range []*tool{begin("at-once", "sleep 0.3"), begin("at-once", "sleep 0.3"), begin("at-once", "sleep 0.3")} {
		host.ends(0)
	}
	wantRuns("at-once", 1)

	// A program whose lock is lost completes nothing, and neither does one that a signal ends.
	lost := begin("lost", "echo on; sleep 600")
	lost.says("on")
	s.rdb.Del(t.Context(), s.part("holders"))
	lost.ends(124)
	begin("lost", "kill -TERM $$").ends(128 + 15)
	begin("lost", "exit 0").ends(0)
	wantRuns("lost", 3)
}
