package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// A limit that is set here is obeyed by handles that were there before.
func TestSetLimitIsObeyed(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		rdb := target.Client(t)
		to, family := target.URL(t), redistest.Name(t)
		for _, total := range []int{0, 50} {
			if total > 0 {
				family += "-total"
			}
			s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: family, Limit: 1, Total: total}))(t)
			l := redistest.Must(s.TryAcquire(t.Context(), "acme"))(t)
			granted := make(chan *semaphore.Lease, 1)
			go func() {
				l, err := s.Acquire(t.Context(), "acme")
				if err != nil {
					t.Error(err)
				}
				granted <- l
			}()
			redistest.Eventually(t, "a waiter", func() bool {
				out, _ := do(t, to, "show", "--semaphore", family, "--key", "acme")
				return strings.Contains(out, "1 waiting")
			})
			if out, err := do(t, to, "set-limit", "--semaphore", family, "--key", "acme", "2"); err != nil || !strings.Contains(out, "/acme is 2") {
				t.Fatalf("set-limit: %v %s", err, out)
			}
			second := redistest.Get(t, "the raise", granted)
			if out, err := do(t, to, "ls", "--family", family); err != nil || !strings.Contains(out, "2/2") || !strings.Contains(out, "limit set") {
				t.Errorf("ls: %v\n%s", err, out)
			}
			if total > 0 {
				if out, err := do(t, to, "set-limit", "--semaphore", family, "--total", "2"); err != nil {
					t.Fatalf("set-limit --total: %v %s", err, out)
				}
				if _, err := s.TryAcquire(t.Context(), "globex"); !errors.Is(err, leasehold.ErrBusy) {
					t.Errorf("beyond the total: %v", err)
				}
				if out, err := do(t, to, "show", "--semaphore", family); err != nil || !strings.Contains(out, "2 of 2 in use") {
					t.Errorf("show: %v\n%s", err, out)
				}
			}
			_, _ = l.Release(), second.Release()
			if out, err := do(t, to, "set-limit", "--semaphore", family, "--key", "acme", "0"); err != nil {
				t.Fatalf("set-limit 0: %v %s", err, out)
			}
			l = redistest.Must(s.TryAcquire(t.Context(), "acme"))(t)
			if _, err := s.TryAcquire(t.Context(), "acme"); !errors.Is(err, leasehold.ErrBusy) {
				t.Errorf("beyond the configured limit: %v", err)
			}
			_ = l.Release()
			redistest.WantErr(t, s.Close(context.Background()))
		}
	})
}

func TestSetLimitRefusesWhatCannotBe(t *testing.T) {
	to := "redis://" + redistest.Mini(t).Addr()
	for _, args := range [][]string{
		{"--semaphore", "n", "--key", "k", "100001"},
		{"--semaphore", "n", "--key", "k", "many"},
		{"--semaphore", "n", "5"},
		{"--key", "k", "5"},
		{"--semaphore", "n", "--key", "k", "--total", "5"},
		{"--semaphore", "n", "--total", "1000001"},
	} {
		var e *run.Error
		if _, err := do(t, to, append([]string{"set-limit"}, args...)...); !errors.As(err, &e) || e.Code != run.CodeUsage {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// The answer says what is in force, what was before, where it is stored and how to go back, of
// a family that is idle, too.
func TestSetLimitSaysWhatItChanged(t *testing.T) {
	mini := redistest.Mini(t)
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	defer rdb.Close()
	to := "redis://" + mini.Addr()
	for _, total := range []int{0, 50} {
		family := redistest.Name(t)
		part, more := "leasehold:sem:{"+family+":a b}:limit", " "
		if total > 0 {
			part, more = "leasehold:sem:{"+family+"}:limits", " --has-total "
		}
		set := func(n string, says ...string) {
			t.Helper()
			args := []string{"set-limit", "--semaphore", family, "--key", "a b", n}
			if total > 0 {
				args = append(args, "--has-total")
			}
			out := redistest.Must(do(t, to, args...))(t)
			for _, text := range says {
				if !strings.Contains(out, text) {
					t.Errorf("set-limit %s does not say %q: %s", n, text, out)
				}
			}
		}
		set("3", "is 3 for all processes", "before it was what each process is configured with", part, "without an expiry", "not known here",
			"leasehold set-limit --semaphore "+family+" --key 'a b'"+more+"0")
		s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: family, Limit: 10, Total: total}))(t)
		l := redistest.Must(s.TryAcquire(t.Context(), "a b"))(t)
		set("5", "is 5", "before it was 3, set by hand", "figure (10)")
		if out, err := do(t, to, "show", "--semaphore", family, "--key", "a b"); err != nil || !strings.Contains(out, "1 of 5 in use (limit set by hand; configured 10)") {
			t.Errorf("show: %v\n%s", err, out)
		}
		set("0", "what each process is configured with (10)", "before it was 5, set by hand")
		if out, err := do(t, to, "show", "--semaphore", family, "--key", "a b"); err != nil || !strings.Contains(out, "1 of 10 in use\n") && !strings.Contains(out, "1 of 10 in use,") {
			t.Errorf("show: %v\n%s", err, out)
		}
		redistest.WantErr(t, l.Release())
		redistest.WantErr(t, s.Close(t.Context()))
	}
}
