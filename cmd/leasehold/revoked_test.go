package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

// told says when it gets SIGTERM, and goes on.
const told = `trap "echo told" TERM; echo on; while :; do sleep 0.02; done`

// A program whose lease is revoked is told long before a renewal would tell it, by
// SIGTERM and the grace or by SIGKILL, and its tool says so.
func TestRevokedProgramIsStopped(t *testing.T) {
	t.Parallel()
	for about, c := range map[string]struct {
		flags  []string
		script string
		line   string // that the program prints when it is told
		says   string // what the tool says
	}{
		"it ends by itself":       {nil, `trap "echo told; exit 0" TERM; echo on; while :; do sleep 0.02; done`, "told", "revoked"},
		"it goes on":              {[]string{"--grace", "3s"}, told, "told", "revoked"},
		"it is not asked":         {[]string{"--lost", "kill"}, told, "", "revoked"},
		"it is stopped meanwhile": {[]string{"--lost", "kill"}, `echo on; kill -STOP $$; echo told`, "", "revoked"},
		"it need not end":         {[]string{"--lost", "warn", "--ttl", "3s"}, `trap "echo told" TERM; echo on; sleep 5; echo over`, "over", "goes on"},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			locks := s.locks(0)
			x := s.sh(c.script, append([]string{"--ttl", "5m"}, c.flags...)...)
			x.says("on")
			at := time.Now()
			s.revokes(redistest.Must(locks.Inspect(t.Context(), "k"))(t).Holder.ID).ends(0)
			// The lock is free at once; the program may go on for the grace.
			next := redistest.Must(locks.TryLock(t.Context(), "k"))(t)
			x.says(c.line)
			x.ends(124, c.says)
			redistest.AtMost(t, time.Since(at), time.Minute, "it ended after %v") // a renewal comes after 100 s
			redistest.WantErr(t, next.Unlock())
		})
	}
}

// The program that comes next starts once the tool of a revoked one has noted that its program has ended, long
// before the revoked lease would have. A tool that is not to wait ends until then.
func TestNextProgramStartsAfterARevokedOne(t *testing.T) {
	s := newSite(t)
	locks := s.locks(0)
	at := time.Now()
	first := s.sh(told, "--ttl", "5m", "--wait", "0", "--grace", "2s")
	first.says("on")
	next := s.sh("date +%s%N; sleep 600", "--ttl", "5m", "--wait", "1m", "--grace", "2s") // it has the lease until it is ended
	s.awaitWaiter()
	redistest.WantErr(t, locks.Revoke(t.Context(), "k", redistest.Must(locks.Inspect(t.Context(), "k"))(t).Holder.ID, "a test"))
	first.says("told")
	for _, wait := range []string{"0", "1s"} { // while the next one has the lease
		s.sh("echo on", "--wait", wait).ends(75)
	}
	first.ends(124)
	began := redistest.Must(strconv.ParseInt(next.line(), 10, 64))(t)
	entries, err := s.rdb.XRange(t.Context(), s.part("audit"), "-", "+").Result()
	redistest.CheckNow(t, err == nil && len(entries) == 2 && entries[1].Values["what"] == "ended" && entries[1].Values["id"] == entries[0].Values["id"],
		"the audit has %v, %v; want the revocation and its end", entries, err)
	ms, _, _ := strings.Cut(entries[1].ID, "-")
	noted := redistest.Must(strconv.ParseInt(ms, 10, 64))(t)
	redistest.AtLeast(t, began/1e6, noted, "the next program began before it was noted that the first one has ended: in ms %d")
	next.signal(syscall.SIGTERM)
	next.ends(128 + 15)
	redistest.AtMost(t, time.Since(at), time.Minute, "all that took %v")
}

// Where nobody notes the end, as a holder that is no tool, or a tool that was killed, the
// next program starts when the revoked lease would have ended.
func TestNextProgramStartsWhenARevokedLeaseWouldHaveEnded(t *testing.T) {
	s := newSite(t)
	locks := s.locks(6 * time.Second)
	l := redistest.Must(locks.Lock(t.Context(), "k"))(t)
	redistest.WantErr(t, locks.Revoke(t.Context(), "k", l.ID(), "a test"))
	at := time.Now()
	s.run("--wait", "0", "--", "true").ends(75)
	s.run("--wait", "1s", "--", "true").ends(75)
	s.run("--", "true").ends(0)
	// The lease was renewed at most a third of its TTL before.
	redistest.Between(t, time.Since(at), 3500*time.Millisecond, 24*time.Second, "the program ended %v after the revocation; the lease lasts 6 s")
	redistest.WantErr(t, l.Unlock(), leasehold.ErrRevoked)
}

// Programs under permits run beside each other: a revoked one is in the way where there is no permit beside it.
func TestNextProgramUnderAPermitStartsBesideARevokedOne(t *testing.T) {
	s := newSite(t)
	permits := redistest.Must(semaphore.New(s.rdb, semaphore.Config{Name: s.name, Limit: 3}))(t)
	defer permits.Close(t.Context())
	l := redistest.Must(permits.AcquireN(t.Context(), "k", 2))(t)
	redistest.WantErr(t, permits.Revoke(t.Context(), "k", l.ID(), "a test"))
	for limit, want := range map[string]int{"3": 0, "2": 75} {
		start(t, s.url, "run", "--semaphore", s.name, "--limit", limit, "--key", "k", "--wait", "0", "--", "true").ends(want)
	}
	redistest.WantErr(t, l.Release(), leasehold.ErrRevoked)
}

// What is in the place of the audit stream keeps no program from running.
func TestToolBesideAKeyOfAnotherType(t *testing.T) {
	s := newSite(t)
	redistest.WantErr(t, s.rdb.Set(t.Context(), s.part("audit"), "text", 0).Err())
	s.run("--wait", "0", "--", "true").ends(0, "WRONGTYPE")
}

// A user that has the rights of a service, and may not read the audit stream, runs programs
// all the same, and is told. With the right it is told nothing.
func TestToolWithoutARightToTheAudit(t *testing.T) {
	if os.Getenv("LEASEHOLD_REQUIRE_SERVERS") != "1" {
		t.Skip("the embedded server has no users")
	}
	s := newSite(t)
	documented := redistest.Must(redistest.DocumentedACL())(t)
	for _, more := range [][]string{nil, {"+xrevrange", "+xadd"}} {
		redistest.WantErr(t, s.rdb.ACLSetUser(t.Context(), s.name, slices.Concat([]string{"reset", "on", ">secret"}, documented, more)...).Err())
		x := s.run("--redis", "redis://"+s.name+":secret@"+s.addr, "--", "true")
		x.ends(0)
		said := x.stderr.String()
		warned := strings.Contains(said, "a program under a revoked lease may still run")
		redistest.Check(t, warned == (more == nil) && (warned || said == ""), "with %v it says %q", more, said)
	}
}

// Programs run in turn, and a revoked one is stopped, wherever the lease is. The lease that is handed to the second is
// short at first, shorter than the grace.
func TestRunOnAllDeployments(t *testing.T) {
	t.Parallel()
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		s := &site{t: t, url: target.URL(t), name: redistest.Name(t)}
		locks := redistest.Must(mutex.New(target.Client(t), mutex.Config{Name: s.name}))(t)
		run := func() *tool {
			return s.sh("echo $LEASEHOLD_TOKEN; sleep 300", "--ttl", "5m", "--lost", "kill")
		}
		token := func(x *tool) uint64 { return redistest.Must(strconv.ParseUint(x.line(), 10, 64))(t) }
		first := run()
		low := token(first)
		second := run()
		var state mutex.State
		redistest.Eventually(t, "a waiter", func() bool {
			state = redistest.Must(locks.Inspect(t.Context(), "k"))(t)
			return state.Waiting == 1
		})
		redistest.CheckNow(t, state.Held && state.LastToken == low, "%+v", state)
		s.revokes(state.Holder.ID).ends(0)
		first.ends(124)
		high := token(second)
		redistest.Check(t, high > low, "token %d comes after %d", high, low)
		second.signal(syscall.SIGTERM)
		second.ends(128 + 15)
		state = redistest.Must(locks.Inspect(t.Context(), "k"))(t)
		redistest.Check(t, !state.Held && state.Waiting == 0, "at the end: %+v", state)
		redistest.WantErr(t, locks.Close(t.Context()))
	})
}
