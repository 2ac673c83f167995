package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// listed is what show says of a key.
func listed(t *testing.T, to string, args ...string) (s text.State) {
	t.Helper()
	out, err := do(t, to, append([]string{"show", "--json"}, args...)...)
	if err != nil || json.Unmarshal([]byte(out), &s) != nil {
		t.Fatalf("show: %v\n%s", err, out)
	}
	return s
}

// wantRevoked waits for the end of a ctx, whose cause has the reason.
func wantRevoked(t *testing.T, ctx context.Context) {
	t.Helper()
	redistest.Get(t, "the end of the Context", ctx.Done())
	var why *leasehold.RevokedError
	if cause := context.Cause(ctx); !errors.As(cause, &why) || why.Reason != "host is gone" {
		t.Errorf("the cause is %v; want the reason", cause)
	}
}

// A lease, a waiter's place and a load that show lists are revoked by their ids.
func TestRevokeTakesWhatShowLists(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		rdb := target.Client(t)
		to := target.URL(t)
		revoke := func(t *testing.T, id string, of ...string) {
			t.Helper()
			for range 2 { // again is no error
				if out, err := do(t, to, append([]string{"revoke", "--reason", "host is gone", id}, of...)...); err != nil || !strings.Contains(out, "is revoked") {
					t.Fatalf("revoke: %v\n%s", err, out)
				}
			}
		}
		for name, total := range map[string]int{"permits": 0, "total": 50} {
			t.Run(name, func(t *testing.T) {
				family := redistest.Name(t)
				s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: family, Limit: 2, Total: total}))(t)
				l := redistest.Must(s.AcquireN(t.Context(), "acme", 2))(t)
				failed := make(chan error, 1)
				go func() {
					_, err := s.Acquire(t.Context(), "acme")
					failed <- err
				}()
				of := []string{"--semaphore", family, "--key", "acme"}
				redistest.Eventually(t, "a waiter", func() bool { return len(listed(t, to, of...).Waiters) == 1 })
				revoke(t, listed(t, to, of...).Waiters[0].ID, of...)
				if err := redistest.Get(t, "the waiter's error", failed); !errors.Is(err, leasehold.ErrRevoked) {
					t.Errorf("the waiter got %v", err)
				}
				if id := listed(t, to, of...).Holders[0].ID; id != l.ID() {
					t.Errorf("show lists %s; the lease is %s", id, l.ID())
				}
				revoke(t, l.ID(), of...)
				wantRevoked(t, l.Context())
				if n := listed(t, to, of...).InUse; n != 0 {
					t.Errorf("%d permits are in use yet", n)
				}
				redistest.WantErr(t, s.Close(context.Background()))
			})
		}
		t.Run("lock", func(t *testing.T) {
			family := redistest.Name(t)
			m := redistest.Must(mutex.New(rdb, mutex.Config{Name: family, HashKeys: true}))(t)
			l := redistest.Must(m.Lock(t.Context(), "nightly"))(t)
			of := []string{"--mutex", family, "--key", "nightly", "--hashed"}
			revoke(t, listed(t, to, of...).Holders[0].ID, of...)
			wantRevoked(t, l.Context())
			redistest.WantErr(t, m.Close(context.Background()))
		})
		t.Run("load", func(t *testing.T) {
			family := redistest.Name(t)
			g := redistest.Must(singleflight.New(rdb, singleflight.Config[int]{Name: family, TTL: time.Minute}))(t)
			loads, done := make(chan context.Context, 1), make(chan int, 1)
			go func() {
				n, _ := g.Do(t.Context(), "acme", func(ctx context.Context) (int, error) {
					loads <- ctx
					<-ctx.Done()
					return 7, nil
				})
				done <- n
			}()
			ctx := redistest.Get(t, "a load", loads)
			of := []string{"--cache", family, "--key", "acme"}
			revoke(t, listed(t, to, of...).Holders[0].ID, of...)
			wantRevoked(t, ctx)
			if n := redistest.Get(t, "the caller's value", done); n != 7 {
				t.Errorf("the caller got %d; want what its loader made", n)
			}
			if s := listed(t, to, of...); s.Cached != nil {
				t.Errorf("the value of a revoked load is stored: %+v", s.Cached)
			}
			redistest.WantErr(t, g.Close(context.Background()))
		})
	})
}

func TestRevokeRefusesWhatCannotBe(t *testing.T) {
	to := "redis://" + redistest.Mini(t).Addr()
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"--mutex", "n", "--key", "k", "--reason", "r"}, 0},
		{[]string{"--mutex", "n", "--key", "k", "id.1"}, 0},
		{[]string{"--mutex", "n", "--reason", "r", "id.1"}, run.CodeUsage},
		{[]string{"--semaphore", "n", "--reason", "r", "id.1"}, run.CodeUsage},
		{[]string{"--guard", "n", "--key", "k", "--reason", "r", "id.1"}, run.CodeUsage},
		{[]string{"--mutex", "n", "--key", "k", "--reason", strings.Repeat("r", 201), "AAAAAAAAAAAAAAAAAAAAAA.1"}, run.CodeUsage},
		{[]string{"--mutex", "n", "--key", "k", "--reason", "", "AAAAAAAAAAAAAAAAAAAAAA.1"}, run.CodeUsage},
	} {
		var e *run.Error
		_, err := do(t, to, append([]string{"revoke"}, c.args...)...)
		if c.code == 0 {
			if err == nil || !isUsage(err) {
				t.Errorf("%q: %v", c.args, err)
			}
		} else if !errors.As(err, &e) || e.Code != c.code {
			t.Errorf("%q: %v", c.args, err)
		}
	}
	// IDs as they are listed, some of which read as flags.
	for _, id := range []string{"AAAAAAAA-1", "-hAAAAAA-1", "--reason-22", "---------3", "-v-A-_AA-18446744073709551615"} {
		for _, args := range [][]string{
			{"revoke", "--mutex", "n", "--key", "k", "--reason", "r", id},
			{"revoke", id, "--mutex", "n", "--key=k", "--reason=r"},
			{"--redis", to, "revoke", "--mutex", "n", id, "--key", "k", "--reason", id},
			{"revoke", "--mutex", "n", "--key", "k", "--reason", "r", "--", id},
		} {
			if out, err := do(t, to, args...); !errors.Is(err, leasehold.ErrNoLease) {
				t.Errorf("%q: %v, %s", args, err, out)
			}
		}
	}
}
