package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

func openLocks(t *testing.T, rdb redis.UniversalClient, cfg mutex.Config) *mutex.Mutex {
	t.Helper()
	locks, err := mutex.New(rdb, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// A program whose lease is revoked is told long before a renewal would tell it, by
// SIGTERM and the grace or by SIGKILL, and its tool says so.
func TestRevokedProgramIsStopped(t *testing.T) {
	addr, rdb := server(t)
	url, name := "redis://"+addr, redistest.Name(t)
	locks := openLocks(t, rdb, mutex.Config{Name: name})
	for about, c := range map[string]struct {
		flags  []string
		script string
		line   string // that the program prints when it is told
	}{
		"it ends by itself":       {nil, `trap "echo told; exit 0" TERM; echo on; while :; do sleep 0.02; done`, "told"},
		"it goes on":              {[]string{"--grace", "3s"}, `trap "echo told" TERM; echo on; while :; do sleep 0.02; done`, "told"},
		"it is not asked":         {[]string{"--lost", "kill"}, `trap "echo told" TERM; echo on; while :; do sleep 0.02; done`, ""},
		"it is stopped meanwhile": {[]string{"--lost", "kill"}, `echo on; kill -STOP $$; echo told`, ""},
	} {
		args := append([]string{"run", "--mutex", name, "--key", about, "--ttl", "5m"}, c.flags...)
		x := start(t, url, append(args, "--", "sh", "-c", c.script)...)
		x.line()
		state, err := locks.Inspect(t.Context(), about)
		if err != nil || !state.Held {
			t.Fatalf("%s: %+v, %v", about, state, err)
		}
		at := time.Now()
		revoking := start(t, url, "revoke", "--mutex", name, "--key", about, "--reason", "a test", state.Holder.ID)
		if code := revoking.code(); code != 0 {
			t.Fatalf("%s: revoke ends with %d: %s", about, code, revoking.stderr.String())
		}
		// The lock is free at once; the program may go on for the grace.
		next, err := locks.TryLock(t.Context(), about)
		if err != nil {
			t.Fatalf("%s: the next holder: %v", about, err)
		}
		if got := x.line(); got != c.line {
			t.Errorf("%s: it prints %q, want %q", about, got, c.line)
		}
		if got := x.code(); got != 124 {
			t.Errorf("%s: exit code %d, want 124", about, got)
		}
		if took := time.Since(at); took > time.Minute { // a renewal comes after 100 s
			t.Errorf("%s: it ended after %v", about, took)
		}
		t.Logf("%s: %v", about, time.Since(at))
		redistest.WantErr(t, next.Unlock())
	}
}

// A tool that waits and whose place is revoked ends as one whose lease is lost, and its
// program never runs.
func TestRevokedWaiterRunsNothing(t *testing.T) {
	addr, rdb := server(t)
	url, name := "redis://"+addr, redistest.Name(t)
	locks := openLocks(t, rdb, mutex.Config{Name: name})
	l, err := locks.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	x := start(t, url, "run", "--mutex", name, "--key", "k", "--", "echo", "on")
	var state mutex.State
	redistest.Eventually(t, "a waiter", func() bool {
		state, err = locks.Inspect(t.Context(), "k")
		return err == nil && len(state.Waiters) == 1
	})
	redistest.WantErr(t, locks.Revoke(t.Context(), "k", state.Waiters[0].ID, "a test"))
	if got := x.code(); got != 124 {
		t.Errorf("exit code %d, want 124: %s", got, x.stderr.String())
	}
	if got := x.line(); got != "" {
		t.Errorf("the program ran: %q", got)
	}
	redistest.WantErr(t, l.Unlock())
}

// The program that comes next starts once the tool of a revoked one has noted that its
// program has ended, long before the revoked lease would have. A tool that is not to wait
// ends until then.
func TestNextProgramStartsAfterARevokedOne(t *testing.T) {
	addr, rdb := server(t)
	url, name := "redis://"+addr, redistest.Name(t)
	locks := openLocks(t, rdb, mutex.Config{Name: name})
	run := func(wait, grace, script string) *tool {
		return start(t, url, "run", "--mutex", name, "--key", "k", "--ttl", "5m", "--wait", wait, "--grace", grace, "--", "sh", "-c", script)
	}
	at := time.Now()
	first := run("0", "2s", `trap "echo told" TERM; echo on; while :; do sleep 0.02; done`)
	first.line()
	next := run("1m", "2s", "date +%s%N; sleep 600") // it has the lease until it is ended
	for waits := 0; waits == 0; time.Sleep(5 * time.Millisecond) {
		state, err := locks.Inspect(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if waits = len(state.Waiters); waits == 1 {
			redistest.WantErr(t, locks.Revoke(t.Context(), "k", state.Holder.ID, "a test"))
		}
	}
	if got := first.line(); got != "told" {
		t.Fatalf("it prints %q", got)
	}
	for _, wait := range []string{"0", "10ms"} {
		x := run(wait, "1s", "echo on")
		if got := x.code(); got != 75 {
			t.Errorf("with --wait %s while the next one has the lease: exit code %d, want 75", wait, got)
		}
	}
	if got := first.code(); got != 124 {
		t.Errorf("the revoked one's exit code is %d, want 124", got)
	}
	began, err := strconv.ParseInt(next.line(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := rdb.XRange(t.Context(), "leasehold:mtx:{"+name+":k}:audit", "-", "+").Result()
	if err != nil || len(entries) != 2 || entries[1].Values["what"] != "ended" || entries[1].Values["id"] != entries[0].Values["id"] {
		t.Fatalf("the audit has %v, %v; want the revocation and its end", entries, err)
	}
	ms, _, _ := strings.Cut(entries[1].ID, "-")
	noted, _ := strconv.ParseInt(ms, 10, 64)
	if began/1e6 < noted {
		t.Errorf("the next program began %d ms before it was noted that the first one has ended", noted-began/1e6)
	}
	next.signal(syscall.SIGTERM)
	if got := next.code(); got != 128+15 {
		t.Errorf("the next one's exit code is %d: %s", got, next.stderr.String())
	}
	if took := time.Since(at); took > time.Minute {
		t.Errorf("all that took %v", took)
	}
}

// Where nobody notes the end, as a holder that is no tool, or a tool that was killed, the
// next program starts when the revoked lease would have ended.
func TestNextProgramStartsWhenARevokedLeaseWouldHaveEnded(t *testing.T) {
	addr, rdb := server(t)
	url, name := "redis://"+addr, redistest.Name(t)
	locks := openLocks(t, rdb, mutex.Config{Name: name, TTL: 6 * time.Second})
	l, err := locks.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	redistest.WantErr(t, locks.Revoke(t.Context(), "k", l.ID(), "a test"))
	at := time.Now()
	args := []string{"run", "--mutex", name, "--key", "k"}
	x := start(t, url, append(args, "--wait", "0", "--", "true")...)
	if got := x.code(); got != 75 {
		t.Errorf("with --wait 0: exit code %d, want 75", got)
	}
	x = start(t, url, append(args, "--wait", "50ms", "--", "true")...)
	if got := x.code(); got != 75 {
		t.Errorf("with --wait 50ms: exit code %d, want 75", got)
	}
	x = start(t, url, append(args, "--", "true")...)
	if got := x.code(); got != 0 {
		t.Errorf("exit code %d: %s", got, x.stderr.String())
	}
	// The lease was renewed at most a third of its TTL before.
	if took := time.Since(at); took < 3500*time.Millisecond || took > 24*time.Second {
		t.Errorf("the program ended %v after the revocation; the lease lasts 6 s", took)
	}
	redistest.WantErr(t, l.Unlock(), leasehold.ErrRevoked)
}

// Programs under permits run beside each other: a revoked one is in the way where there is
// no permit beside it.
func TestNextProgramUnderAPermitStartsBesideARevokedOne(t *testing.T) {
	addr, rdb := server(t)
	name := redistest.Name(t)
	permits, err := semaphore.New(rdb, semaphore.Config{Name: name, Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer permits.Close(t.Context())
	l, err := permits.AcquireN(t.Context(), "k", 2)
	if err != nil {
		t.Fatal(err)
	}
	redistest.WantErr(t, permits.Revoke(t.Context(), "k", l.ID(), "a test"))
	for limit, want := range map[string]int{"3": 0, "2": 75} {
		x := start(t, "redis://"+addr, "run", "--semaphore", name, "--limit", limit, "--key", "k", "--wait", "0", "--", "true")
		if got := x.code(); got != want {
			t.Errorf("with a limit of %s: exit code %d, want %d: %s", limit, got, want, x.stderr.String())
		}
	}
	redistest.WantErr(t, l.Release(), leasehold.ErrRevoked)
}

// What is in the place of the audit stream keeps no program from running.
func TestToolBesideAKeyOfAnotherType(t *testing.T) {
	addr, rdb := server(t)
	name := redistest.Name(t)
	redistest.WantErr(t, rdb.Set(t.Context(), "leasehold:mtx:{"+name+":k}:audit", "text", 0).Err())
	x := start(t, "redis://"+addr, "run", "--mutex", name, "--key", "k", "--wait", "0", "--", "true")
	if got := x.code(); got != 0 || !strings.Contains(x.stderr.String(), "WRONGTYPE") {
		t.Errorf("exit code %d; it says %q", got, x.stderr.String())
	}
}

// A user that has the rights of a service, and may not read the audit stream, runs programs
// all the same, and is told. With the right it is told nothing.
func TestToolWithoutARightToTheAudit(t *testing.T) {
	if os.Getenv("LEASEHOLD_REQUIRE_SERVERS") != "1" {
		t.Skip("the embedded server has no users")
	}
	addr, rdb := server(t)
	name := redistest.Name(t)
	rules, err := redistest.DocumentedACL()
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range [][]any{nil, {"+xrevrange", "+xadd"}} {
		args := []any{"acl", "setuser", name, "reset", "on", ">secret"}
		for _, rule := range rules {
			args = append(args, rule)
		}
		redistest.WantErr(t, rdb.Do(t.Context(), append(args, more...)...).Err())
		x := start(t, "redis://"+name+":secret@"+addr, "run", "--mutex", name, "--key", "k", "--", "true")
		if got := x.code(); got != 0 {
			t.Errorf("with %v: exit code %d", more, got)
		}
		said := x.stderr.String()
		if warned := strings.Contains(said, "a program under a revoked lease may still run"); warned != (more == nil) || !warned && said != "" {
			t.Errorf("with %v it says %q", more, said)
		}
	}
}
