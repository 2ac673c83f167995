package semaphore

import (
	"context"
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

// Credentials are rotated, and for two seconds the server and the client have different ones:
// holders keep their leases, waiters their places, and a call that begins meanwhile is served.
// If the rotation does not end, the call ends within its bound, and its error names the cause.
func TestRotatedCredentials(t *testing.T) {
	const ttl = 6 * time.Second
	for name, rotation := range map[string]struct {
		begin, end []any // commands of the administrator
	}{
		"WRONGPASS": {[]any{"ACL", "SETUSER", "app", ">new", "<old"}, nil},
		"NOPERM":    {[]any{"ACL", "SETUSER", "app", "-@all"}, []any{"ACL", "SETUSER", "app", "+@all"}},
		// go-redis keeps connections that it made without a password, so this one is taken back.
		"NOAUTH": {[]any{"CONFIG", "SET", "requirepass", "new"}, []any{"CONFIG", "SET", "requirepass", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ownServers(t, func(t *testing.T, srv *redistest.Server) {
				admin := srv.Client(func(o *redis.Options) { o.Username, o.Password = "admin", "secret" })
				run := func(args ...any) {
					t.Helper()
					redistest.Require(t, admin.Do(context.Background(), args...).Err(), nil, "%v: %v", args)
				}
				redistest.WantErr(t, srv.Client().Do(t.Context(), "ACL", "SETUSER", "admin", "on", ">secret", "~*", "&*", "+@all").Err())
				run("ACL", "SETUSER", "app", "on", ">old", "~*", "&*", "+@all")
				s := newSite(t, admin)
				var password atomic.Value
				user := "app"
				if password.Store("old"); name == "NOAUTH" {
					user = "" // the default user, who needs no password yet
					password.Store("")
				}
				h := s.closing(srv.Client(func(o *redis.Options) {
					o.CredentialsProvider = func() (string, string) { return user, password.Load().(string) }
				}), semaphore.Config{Limit: 1, TTL: ttl})
				held := redistest.Must(h.Acquire(t.Context(), s.Key))(t)
				var waiters []*harness.Call[*semaphore.Lease]
				for i := range 2 {
					waiters = append(waiters, s.acquiring(context.Background(), h))
					s.WaitQueued(i + 1)
				}

				run(rotation.begin...)
				for _, who := range []string{"app", "default"} {
					run("CLIENT", "KILL", "USER", who)
				}
				began := time.Now()
				other := &site{s.On(t, "other")}
				newcomer := other.acquiring(context.Background(), h)
				_, err := h.TryAcquire(t.Context(), "third")
				redistest.WantErr(t, err, leasehold.ErrUnavailable)
				redistest.Check(t, err != nil && namesCredentials(err, name), "try: %v; want that it names %s", err, name)
				redistest.AtMost(t, time.Since(began), time.Second, "try: it took %v")
				time.Sleep(time.Until(began.Add(2 * time.Second)))
				if rotation.end != nil {
					run(rotation.end...)
				} else {
					password.Store("new")
				}

				got := newcomer.Within(5*time.Second, "an acquisition that began meanwhile").Got()
				renewed(t, held, began.Add(ttl+time.Second))
				for i, lease := range []*semaphore.Lease{held, nil, nil} {
					if i > 0 {
						lease = waiters[i-1].Within(5*time.Second, fmt.Sprint("waiter ", i)).Got()
					}
					redistest.Expect(t, lease.Release(), nil, "release: %v")
				}
				redistest.Expect(t, got.Release(), nil, "release: %v")

				// One that does not end.
				last := password.Swap("wrong")
				if name == "NOAUTH" { // of the default user: any password is right
					run("CONFIG", "SET", "requirepass", "new")
				}
				for _, who := range []string{"app", "default"} {
					run("CLIENT", "KILL", "USER", who)
				}
				began = time.Now()
				_, err = h.Acquire(t.Context(), "other")
				redistest.WantErr(t, err, leasehold.ErrUnavailable)
				redistest.Check(t, err != nil && namesCredentials(err, "WRONGPASS"),
					"a rotation that does not end: %v; want that it names WRONGPASS", err)
				redistest.AtMost(t, time.Since(began), 6*time.Second, "a rotation that does not end: told after %v")
				if password.Store(last); name == "NOAUTH" {
					run(rotation.end...)
				}
			})
		})
	}
}

// namesCredentials reports whether err names the server's error. A server that wants a password
// answers calls with more than ten arguments with a text of its own.
func namesCredentials(err error, name string) bool {
	return strings.Contains(err.Error(), name) || name == "NOAUTH" && strings.Contains(err.Error(), "unauthenticated")
}
