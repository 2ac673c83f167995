package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// answer is an error of the server.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// The server refuses to give back, several times, and then works again: the permit comes back long before its TTL.
func TestRefusedLeavesAreRepeated(t *testing.T) {
	srv := redistest.Shared(t, redistest.NeedServers(t)[0])
	for _, text := range []string{
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"ERR max number of clients + cluster connections reached",
		"NOPERM this user has no permissions to run the 'evalsha' command",
		"OOM command not allowed when used memory > 'maxmemory'.",
	} {
		for _, times := range []int64{4, 8} {
			t.Run(strings.Fields(text)[0], func(t *testing.T) {
				t.Parallel()
				srv := redistest.Shared(t, srv.Version) // which closes this test's clients at its end
				s, rdb := newSite(t, harness.Permits, srv.Client()), srv.Client()
				var left, said atomic.Int64
				wire := &harness.Wire{}
				wire.Fail(func(name string) error {
					if name != "leave" || left.Add(-1) < 0 {
						return nil
					}
					said.Add(1)
					return answer(text)
				})
				rdb.AddHook(wire)
				h := s.semaphore(rdb, semaphore.Config{Limit: 1, TTL: time.Minute})
				l := redistest.Must(h.Acquire(t.Context(), s.key))(t)
				left.Store(times)
				if err := l.Release(); err != nil {
					redistest.WantErr(t, err, leasehold.ErrUnavailable)
				}
				harness.WaitCount(t, "permits", 0, s.inUse)
				redistest.Expect(t, said.Load(), times, "%d leaves were refused")
			})
		}
	}
}

// lastingTTL is that of leases that have to stay held, on a busy machine too.
const lastingTTL = 3 * time.Second

// ownServers runs fn on a server of each version that is the test's own, all at once.
func ownServers(t *testing.T, fn func(t *testing.T, srv *redistest.Server)) {
	own := func(tb testing.TB, v redistest.Version) *redistest.Server { return redistest.StartServer(tb, v) }
	harness.EachServerAtOnce(t, own, fn)
}

// noBusyLoop says that what is tried again and again meanwhile takes no more than so many commands in a second.
func noBusyLoop(tb testing.TB, p *redistest.Proxy, most int) {
	tb.Helper()
	p.ResetCounts()
	time.Sleep(time.Second)
	total := 0
	for name, n := range p.Commands() {
		if name != "HELLO" && name != "CLIENT" {
			total += n
		}
	}
	redistest.Check(tb, total <= most, "%d commands in a second of nothing but errors: %v", total, p.Commands())
}

// renewed waits until a lease was renewed, and fails the test where it is lost.
func renewed(tb testing.TB, l *semaphore.Lease, since time.Time) {
	tb.Helper()
	redistest.Eventually(tb, "a renewal", func() bool {
		redistest.Require(tb, context.Cause(l.Context()), nil, "lost: %v")
		return l.Deadline().After(since)
	})
}

// The server becomes a replica and is made a primary again: a caller that does not wait is
// told, a waiter is served, and every lease stays held.
func TestReadOnlyServer(t *testing.T) {
	ownServers(t, func(t *testing.T, srv *redistest.Server) {
		s := newSite(t, harness.Permits, srv.Client())
		p := redistest.NewProxy(t, srv.Addr())
		h := s.semaphore(p.Client(), semaphore.Config{Limit: 1, TTL: 6 * time.Second})
		l := redistest.Must(h.Acquire(t.Context(), s.key))(t)
		waiter := s.acquiring(context.Background(), h)
		s.waitQueued(1)
		redistest.WantErr(t, s.RDB.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
		at := time.Now()
		redistest.WantErr(t, redistest.ErrorOf(h.TryAcquire(t.Context(), "other")), leasehold.ErrUnavailable, redistest.Says("READONLY"))
		redistest.AtMost(t, time.Since(at), 3*time.Second, "try acquire took %v")
		newcomer := s.on(t, "third").acquiring(context.Background(), h)
		noBusyLoop(t, p, 100)
		redistest.WantErr(t, s.RDB.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
		got := newcomer.Within(5*time.Second, "an acquire that waits").Got()
		renewed(t, l, time.Now().Add(5*time.Second)) // TTL from now, less a margin
		redistest.Expect(t, l.Release(), nil, "release: %v")
		next := waiter.Within(5*time.Second, "a wait").Got()
		redistest.Expect(t, errors.Join(next.Release(), got.Release()), nil, "release: %v")
		s.empty(1, time.Second)
	})
}

// The server's memory is full and it evicts nothing: nothing more is granted, and nothing is lost.
func TestServerOutOfMemory(t *testing.T) {
	ownServers(t, func(t *testing.T, srv *redistest.Server) {
		s := newSite(t, harness.Permits, srv.Client())
		p := redistest.NewProxy(t, srv.Addr())
		h := s.semaphore(p.Client(), semaphore.Config{Limit: 2, TTL: lastingTTL})
		var held []*semaphore.Lease
		for range 2 {
			held = append(held, redistest.Must(h.Acquire(t.Context(), s.key))(t))
		}
		waiter := s.acquiring(context.Background(), h)
		s.waitQueued(1)
		redistest.WantErr(t, s.RDB.ConfigSet(t.Context(), "maxmemory", "1").Err())
		full := time.Now()
		for name, acquire := range map[string]func(context.Context, string) (*semaphore.Lease, error){
			"acquire": h.Acquire, "try acquire": h.TryAcquire,
		} {
			for _, key := range []string{"other", s.key} { // where there is room, and where there is none
				_, err := acquire(t.Context(), key)
				if name == "try acquire" && key == s.key {
					redistest.WantErr(t, err, leasehold.ErrBusy) // which needs no memory
					continue
				}
				redistest.WantErr(t, err, leasehold.ErrUnavailable, redistest.Says("OOM"))
			}
		}
		redistest.AtMost(t, time.Since(full), 2*time.Second, "four refusals took %v")
		noBusyLoop(t, p, 60)
		for _, l := range held {
			renewed(t, l, full.Add(lastingTTL))
		}
		redistest.Expect(t, s.queued(), 1, "%d wait")
		redistest.Expect(t, held[0].Release(), nil, "release: %v")
		next := waiter.Within(5*time.Second, "a waiter whose turn has come").Got()
		s.holds(2)
		redistest.Expect(t, errors.Join(held[1].Release(), next.Release()), nil, "release: %v")
		s.holds(0)
		redistest.WantErr(t, s.RDB.ConfigSet(t.Context(), "maxmemory", "0").Err())
		s.empty(2, time.Second)
	})
}

// Credentials are rotated, and for two seconds the server and the client have different ones:
// holders keep their leases, waiters their places, and a call that begins meanwhile is served.
// If the rotation does not end, the call ends within its bound, and its error names the cause.
func TestRotatedCredentials(t *testing.T) {
	const ttl = 6 * time.Second
	for name, rotation := range map[string]struct {
		user, password string // of the client
		begin, end     []any  // commands of the administrator; without an end the client's password changes
	}{
		"WRONGPASS": {"app", "old", []any{"ACL", "SETUSER", "app", ">new", "<old"}, nil},
		"NOPERM":    {"app", "old", []any{"ACL", "SETUSER", "app", "-@all"}, []any{"ACL", "SETUSER", "app", "+@all"}},
		// The default user needs no password yet. go-redis keeps connections that it made without one, so this is taken back.
		"NOAUTH": {"", "", []any{"CONFIG", "SET", "requirepass", "new"}, []any{"CONFIG", "SET", "requirepass", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ownServers(t, func(t *testing.T, srv *redistest.Server) {
				admin := srv.Client(func(o *redis.Options) { o.Username, o.Password = "admin", "secret" })
				run := func(args ...any) {
					t.Helper()
					redistest.Require(t, admin.Do(context.Background(), args...).Err(), nil, "%v: %v", args)
				}
				cut := func() {
					run("CLIENT", "KILL", "USER", "app")
					run("CLIENT", "KILL", "USER", "default")
				}
				redistest.WantErr(t, srv.Client().Do(t.Context(), "ACL", "SETUSER", "admin", "on", ">secret", "~*", "&*", "+@all").Err())
				run("ACL", "SETUSER", "app", "on", ">old", "~*", "&*", "+@all")
				s := newSite(t, harness.Permits, admin)
				var password atomic.Value
				password.Store(rotation.password)
				h := s.semaphore(srv.Client(func(o *redis.Options) {
					o.CredentialsProvider = func() (string, string) { return rotation.user, password.Load().(string) }
				}), semaphore.Config{Limit: 1, TTL: ttl})
				held := redistest.Must(h.Acquire(t.Context(), s.key))(t)
				var waiters []*harness.Call[*semaphore.Lease]
				for i := range 2 {
					waiters = append(waiters, s.acquiring(context.Background(), h))
					s.waitQueued(i + 1)
				}

				run(rotation.begin...)
				cut()
				began := time.Now()
				newcomer := s.on(t, "other").acquiring(context.Background(), h)
				refused(t, redistest.ErrorOf(h.TryAcquire(t.Context(), "third")), name)
				redistest.AtMost(t, time.Since(began), time.Second, "try: it took %v")
				time.Sleep(time.Until(began.Add(2 * time.Second)))
				if rotation.end != nil {
					run(rotation.end...)
				} else {
					password.Store("new")
				}

				got := newcomer.Within(5*time.Second, "an acquisition that began meanwhile").Got()
				renewed(t, held, began.Add(ttl+time.Second))
				redistest.Expect(t, held.Release(), nil, "release: %v")
				for i, waiter := range waiters {
					redistest.Expect(t, waiter.Within(5*time.Second, fmt.Sprint("waiter ", i)).Got().Release(), nil, "release: %v")
				}
				redistest.Expect(t, got.Release(), nil, "release: %v")

				// One that does not end.
				last := password.Swap("wrong")
				if name == "NOAUTH" { // of the default user: any password is right
					run(rotation.begin...)
				}
				cut()
				began = time.Now()
				refused(t, redistest.ErrorOf(h.Acquire(t.Context(), "other")), "WRONGPASS")
				redistest.AtMost(t, time.Since(began), 6*time.Second, "a rotation that does not end: told after %v")
				if password.Store(last); name == "NOAUTH" {
					run(rotation.end...)
				}
			})
		})
	}
}

// refused fails the test unless err names the server's error. A server that wants a password answers calls with more
// than ten arguments with a text of its own.
func refused(t *testing.T, err error, name string) {
	t.Helper()
	redistest.WantErr(t, err, leasehold.ErrUnavailable)
	text := err.Error()
	redistest.Check(t, strings.Contains(text, name) || name == "NOAUTH" && strings.Contains(text, "unauthenticated"), "%v; want that it names %s", err, name)
}
