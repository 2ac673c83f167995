package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) {
	program.RunIfChild()
	os.Exit(m.Run())
}

func TestModestTenantsAreLetInAtTheirTurn(t *testing.T) {
	if os.Getenv("LEASEHOLD_REQUIRE_SERVERS") == "" {
		t.Skip("it takes 20 s: make test runs it")
	}
	t.Setenv("REDIS_URL", "")
	demotest.Check(t, program.Show)
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

// good is a plain queue in which 40 requests pass each modest one, and a fair phase.
func good() []*result {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	plain := &result{phase: phase{name: "plain", total: total, limited: limit}, tenants: map[string]*tenant{}}
	fair := &result{phase: phase{name: "fair", total: total, limited: limit}, tenants: map[string]*tenant{}}
	for i, name := range tenants {
		p, f := new(tenant), new(tenant)
		for n := range 50 {
			begin := 1000 * n
			if !isModest(name) {
				p.served = append(p.served, answer{at(begin), at(begin + 100), at(begin + 200)})
				f.served = append(f.served, answer{at(begin), at(begin + 10), at(begin + 20)})
			} else if n >= 45 {
				p.served = append(p.served, answer{at(begin - 40_000), at(begin + 300), at(begin + 400)})
				f.served = append(f.served, answer{at(begin), at(begin + 30 + i), at(begin + 32 + i)})
			}
		}
		plain.tenants[name], fair.tenants[name] = p, f
	}
	return []*result{plain, fair}
}

// The verdict must find fault with each of these.
func TestVerdictFindsFault(t *testing.T) {
	if problems := verdict(good()); len(problems) > 0 {
		t.Fatalf("fault is found with a good show: %q", problems)
	}
	crowd := func(r *result, n int, names ...string) {
		for _, name := range names {
			for range n {
				r.tenants[name].served = append(r.tenants[name].served, r.tenants[tenants[0]].served[0])
			}
		}
	}
	for want, spoil := range map[string]func(plain, fair *result){
		"the total is 8": func(_, fair *result) { crowd(fair, 3, "modest-1", "modest-2", "modest-3") },
		"its limit is 4": func(_, fair *result) { crowd(fair, 4, "greedy-1") },
		"its limit is 2": func(_, fair *result) { fair.limited = 2; crowd(fair, 2, "greedy-1") },
		"were refused":   func(_, fair *result) { fair.tenants["modest-1"].refused = 1 },
		"failed":         func(_, fair *result) { fair.tenants["greedy-1"].failed = 1 },
		"did not fill":   func(plain, fair *result) { plain.tenants = fair.tenants },
		"were served": func(_, fair *result) {
			fair.tenants["modest-1"], fair.tenants["modest-2"], fair.tenants["modest-3"], fair.tenants["modest-4"], fair.tenants["modest-5"] = new(tenant), new(tenant), new(tenant), new(tenant), new(tenant)
		},
		"two turns are 16": func(plain, fair *result) { fair.tenants = plain.tenants },
	} {
		all := good()
		spoil(all[0], all[1])
		if problems := strings.Join(verdict(all), "\n"); !strings.Contains(problems, want) {
			t.Errorf("the verdict is %q; want %q", problems, want)
		}
	}
}
