package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) {
	program.RunIfChild()
	os.Exit(m.Run())
}

func TestModestTenantsAreLetInAtTheirTurn(t *testing.T) {
	if os.Getenv("LEASEHOLD_REQUIRE_SERVERS") == "" {
		t.Skip("it takes 25 s: make test runs it")
	}
	t.Setenv("REDIS_URL", "")
	demotest.Check(t, program.Show)
}

// The end of the standard input is no empty line: the live view goes on.
func TestLiveViewWithoutInput(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts processes")
	}
	t.Setenv("REDIS_URL", "")
	empty, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	stdin := os.Stdin
	os.Stdin = empty
	defer func() { os.Stdin = stdin }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p := program
	p.Run = live
	view := make(screen, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := p.Show(ctx, view)
		ended <- err
	}()
	for range 2 {
		select {
		case <-view:
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// screen tells of what is shown.
type screen chan struct{}

func (s screen) Write(p []byte) (int, error) {
	select {
	case s <- struct{}{}:
	default:
	}
	return len(p), nil
}

// What is not let in is answered with a status that tells the client what to do.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		after  string
	}{
		{&leasehold.BusyError{RetryAfter: 1200 * time.Millisecond}, http.StatusTooManyRequests, "2"},
		{errors.Join(errors.New("x"), leasehold.ErrQueueFull), http.StatusTooManyRequests, "1"},
		{leasehold.ErrUnavailable, http.StatusServiceUnavailable, ""},
	} {
		w := httptest.NewRecorder()
		refuse(w, c.err)
		if w.Code != c.status || w.Header().Get("Retry-After") != c.after {
			t.Errorf("%v is answered with %d, Retry-After %q", c.err, w.Code, w.Header().Get("Retry-After"))
		}
	}
}

// good is a show without fault.
func good() []*result {
	began := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	var all []*result
	for _, p := range []phase{{name: "plain"}, {name: "fair"}, {name: "raised", total: 16}, {name: "limited", total: 16, limited: 2}} {
		r := newResult(p)
		waited, rounds := 20*time.Millisecond, 5
		if p.name == "plain" {
			waited, rounds = 10*time.Second, 40
		}
		for _, name := range tenants {
			for i := range rounds {
				from := began.Add(time.Duration(i) * 100 * time.Millisecond)
				if !isModest(name) || i >= rounds-3 {
					came := from.Add(-waited)
					r.add(name, came, answer{Came: came, From: from.Add(time.Duration(len(name)) * time.Millisecond), To: from.Add(50 * time.Millisecond)}, http.StatusOK)
				}
			}
		}
		all = append(all, r)
	}
	for _, r := range all[:2] { // ten tenants at once are more than the total
		for i, name := range tenants {
			for j := range r.tenants[name].spans {
				a := &r.tenants[name].spans[j]
				shift := time.Duration(i/5) * 50 * time.Millisecond
				a.From, a.To = a.From.Add(shift), a.To.Add(shift)
			}
		}
	}
	return all
}

// The verdict must find fault with each of these.
func TestVerdictFindsFault(t *testing.T) {
	if problems := verdict(good()); len(problems) > 0 {
		t.Fatalf("fault is found with a good show: %q", problems)
	}
	crowd := func(r *result, name string, n int) {
		for range n {
			r.tenants[name].spans = append(r.tenants[name].spans, r.tenants[name].spans[0])
		}
	}
	for want, spoil := range map[string]func([]*result){
		"the total is 8": func(all []*result) {
			crowd(all[1], "modest-1", 2)
			crowd(all[1], "modest-2", 2)
			crowd(all[1], "modest-3", 2)
		},
		"its limit is 4": func(all []*result) { crowd(all[2], "greedy-1", 4) },
		"its limit is 2": func(all []*result) { crowd(all[3], "greedy-1", 2) },
		"were refused":   func(all []*result) { all[1].tenants["modest-1"].refused = 1 },
		"failed":         func(all []*result) { all[1].tenants["greedy-1"].failed = 1 },
		"two turns are": func(all []*result) {
			for _, name := range tenants[2:] {
				spans := all[1].tenants[name].spans
				spans[2].Came = spans[2].Came.Add(-10 * time.Second)
			}
		},
		"did not fill": func(all []*result) { all[0] = all[1] },
		"modest tenants were": func(all []*result) {
			all[1].tenants["modest-1"] = new(tenant)
			all[1].tenants["modest-2"] = new(tenant)
		},
	} {
		all := good()
		spoil(all)
		if problems := strings.Join(verdict(all), "\n"); !strings.Contains(problems, want) {
			t.Errorf("the verdict is %q; want %q", problems, want)
		}
	}
}

var _ demo.Role = service
