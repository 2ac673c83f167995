package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// take takes a permit of acme in a family with a total, or without one.
func take(t *testing.T, target redistest.Target, family string, total int) *semaphore.Lease {
	t.Helper()
	s := redistest.Must(semaphore.New(target.Client(t), semaphore.Config{Name: family, Limit: 2, Total: total}))(t)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	l := redistest.Must(s.TryAcquire(t.Context(), "acme"))(t)
	return l
}

// setLimit sets a limit or a total. It returns what is refused of the arguments.
func setLimit(t *testing.T, to, family string, args ...string) error {
	t.Helper()
	out, err := do(t, to, append([]string{"set-limit", "--semaphore", family}, args...)...)
	var e *run.Error
	if err != nil && (!errors.As(err, &e) || e.Code != run.CodeUsage || !strings.Contains(err.Error(), "--has-total")) {
		t.Fatalf("set-limit %q: %v\n%s", args, err, out)
	}
	return err
}

// A total that was set by mistake hides no permit of a family that has none.
func TestStoredTotalOfAFamilyWithoutOne(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		to, family := target.URL(t), redistest.Name(t)
		of := []string{"--semaphore", family, "--key", "acme"}
		l := take(t, target, family, 0)
		if setLimit(t, to, family, "--total", "200") == nil {
			t.Error("a total is set where only keys without a total are")
		}
		if err := setLimit(t, to, family, "--total", "200", "--has-total"); err != nil {
			t.Errorf("an operator who insists is refused: %v", err)
		}
		if s := listed(t, to, of...); s.HasTotal || s.InUse != 1 || len(s.Holders) != 1 || s.Holders[0].ID != l.ID() {
			t.Errorf("show lists %+v; the lease is %s", s, l.ID())
		}
		if setLimit(t, to, family, "--key", "acme", "5") == nil {
			t.Error("a limit is set though there are keys of both kinds")
		}
		if err := setLimit(t, to, family, "--key", "acme", "5", "--has-total=false"); err != nil {
			t.Errorf("an operator who insists is refused: %v", err)
		}
		if s := listed(t, to, of...); s.Limit != 5 || !s.StoredLimit {
			t.Errorf("show lists %+v; want the limit 5", s)
		}
		if out, err := do(t, to, append([]string{"revoke", "--reason", "host is gone", l.ID()}, of...)...); err != nil {
			t.Fatalf("revoke: %v\n%s", err, out)
		}
		wantRevoked(t, l.Context())
		if err := setLimit(t, to, family, "--total", "0"); err != nil {
			t.Errorf("the total cannot be taken back: %v", err)
		}
		if err := setLimit(t, to, family, "--key", "acme", "6"); err != nil {
			t.Errorf("keys without a total are all that is left: %v", err)
		}
	})
}

// The keys of a family with a total and those of the same name without one are shown
// beside each other, and revoked by their ids.
func TestBothKindsOfKeysOfOneName(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		to, family := target.URL(t), redistest.Name(t)
		of := []string{"--semaphore", family, "--key", "acme"}
		for i, l := range []*semaphore.Lease{take(t, target, family, 9), take(t, target, family, 0)} {
			out, err := do(t, to, append([]string{"show"}, of...)...)
			if err != nil || !strings.Contains(out, l.ID()) {
				t.Errorf("show lists no %s: %v\n%s", l.ID(), err, out)
			}
			both := strings.Contains(out, "(with a total)") && strings.Contains(out, "(without a total)")
			if both != (i == 0) { // the first one is revoked then
				t.Errorf("show says\n%s", out)
			}
			out, err = do(t, to, append([]string{"show", "--json"}, of...)...)
			if n := strings.Count(out, "\n"); err != nil || both != (n == 2) {
				t.Errorf("show --json has %d lines: %v\n%s", n, err, out)
			}
			for line := range strings.Lines(out) {
				var s text.State
				if err := json.Unmarshal([]byte(line), &s); err != nil || len(s.Holders) != 1 || s.HasTotal != (s.Total == 9) {
					t.Errorf("a line is %s: %v", line, err)
				}
			}
			if out, err := do(t, to, append([]string{"revoke", "--reason", "host is gone", l.ID()}, of...)...); err != nil {
				t.Fatalf("revoke: %v\n%s", err, out)
			}
			wantRevoked(t, l.Context())
		}
	})
}

// A family with a total on which nothing happens is known by what is stored of it.
func TestIdleFamilyWithATotal(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		to, family := target.URL(t), redistest.Name(t)
		redistest.WantErr(t, setLimit(t, to, family, "--total", "9"))
		redistest.WantErr(t, setLimit(t, to, family, "--key", "acme", "1"))
		if s := listed(t, to, "--semaphore", family, "--key", "acme"); !s.HasTotal || s.Total != 9 || s.Limit != 1 || !s.StoredLimit {
			t.Errorf("show lists %+v", s)
		}
		l := take(t, target, family, 9)
		if s := listed(t, to, "--semaphore", family, "--key", "acme"); s.Limit != 1 || s.InUse != 1 || s.Holders[0].ID != l.ID() {
			t.Errorf("show lists %+v", s)
		}
	})
}

// Where one kind of keys cannot be read, a lease that is not among the others may be there.
func TestNoLeaseIsSaidOnlyWhereAllWasRead(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		rdb, to := target.Client(t), target.URL(t)
		for _, total := range []int{9, 0} {
			family := redistest.Name(t)
			l := take(t, target, family, total)
			broken := "leasehold:sem:{" + family + "}:queue"
			if total > 0 {
				broken = "leasehold:sem:{" + family + ":acme}:queue"
			}
			redistest.WantErr(t, rdb.Set(t.Context(), broken, "text", 0).Err())
			revoke := []string{"revoke", "--semaphore", family, "--key", "acme", "--reason", "host is gone"}
			var e *run.Error
			if _, err := do(t, to, append(revoke, "AAAAAAAA-1")...); !errors.As(err, &e) || e.Code != run.CodeUnreachable || errors.Is(err, leasehold.ErrNoLease) {
				t.Errorf("total %d: the revocation of an unknown lease: %v", total, err)
			}
			if out, err := do(t, to, append(revoke, l.ID())...); err != nil {
				t.Errorf("total %d: the revocation of a lease: %v\n%s", total, err, out)
			}
			wantRevoked(t, l.Context())
		}
	})
}

func TestHasTotalAndTotalAgree(t *testing.T) {
	to := "redis://" + redistest.Mini(t).Addr()
	if setLimit(t, to, "n", "--total", "5", "--has-total=false") == nil {
		t.Error("a total is set of a family that has none")
	}
}
