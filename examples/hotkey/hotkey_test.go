package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/examples/internal/demotest"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) {
	ttl = 400 * time.Millisecond
	demotest.Main(m, program)
}

func TestHeadless(t *testing.T) {
	out := demotest.Check(t, program)
	for _, want := range []string{`(?m)^off +\d+ +\d+ +\d+`, `(?m)^on +\d+ +\d+ +\d+ +1 +0`, `(?m)^stale +\d+ +\d+ +\d+ +1 `, `(?m)^near +\d+ +\d+ +\d+ +1 `, `exactly one load`} {
		redistest.Check(t, regexp.MustCompile(want).MatchString(out), "the output has no %s", want)
	}
}

// An error does not quote the URL, which may hold a password.
func TestNoServer(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://:secret@127.0.0.1:1/0?max_retries=-1")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := program.Show(ctx, io.Discard); err == nil || ctx.Err() != nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestVerdictFindsFault(t *testing.T) {
	demotest.FindsFault(t, func(phases map[mode]*phase) (problems demo.Problems) {
		for _, p := range phases {
			problems = append(problems, p.verdict()...)
		}
		return problems
	}, func() map[mode]*phase {
		good := map[mode]*phase{}
		for _, m := range modes {
			good[m] = &phase{Mode: m, Requests: 20, Expiries: 2, Loads: 2, Most: 1, Hits: 9, Waits: 3, Stale: 2, Memory: 5}
		}
		good[off].Loads = 40
		return good
	}, map[string]func(map[mode]*phase){
		"on: 3 loads in 2 expiries":     func(p map[mode]*phase) { p[on].Loads = 3 },
		"2 loads ran at once":           func(p map[mode]*phase) { p[stale].Most = 2 },
		"2 requests failed":             func(p map[mode]*phase) { p[near].Errors = 2 },
		"20 requests in 1 expiries":     func(p map[mode]*phase) { p[on].Expiries, p[on].Loads = 1, 1 },
		"off: 0 requests in 2 expiries": func(p map[mode]*phase) { p[off].Requests = 0 },
		"3 loads in 2 expiries is no":   func(p map[mode]*phase) { p[off].Loads = 3 },
		"on: 0 answers":                 func(p map[mode]*phase) { p[on].Waits = 0 },
		"stale: 0 answers":              func(p map[mode]*phase) { p[stale].Stale = 0 },
		"near: 0 answers":               func(p map[mode]*phase) { p[near].Memory = 0 },
		"and 0 hits":                    func(p map[mode]*phase) { p[on].Hits = 0 },
	})
}

// The verdict is only as good as the count of expiries. The numbers are times in tenths of the TTL:
// a load begins, and is due or not.
func TestExpiriesAreCounted(t *testing.T) {
	start := time.Now()
	at := func(tenths int) time.Time { return start.Add(time.Duration(tenths) * ttl / 10) }
	for name, c := range map[string]struct {
		origin origin
		at     int
		due    int
	}{
		"nothing was loaded":     {origin{}, 0, 1},
		"another load runs":      {origin{running: 1}, 0, 0},
		"a value is fresh":       {origin{freshTill: at(10)}, 7, 0},
		"a value may be expired": {origin{freshTill: at(10)}, 8, 1},
	} {
		p := &phase{Bars: []int{0}}
		p.begin(&c.origin, at(c.at))
		redistest.Check(t, p.Expiries == c.due && p.Loads == 1 && p.Bars[len(p.Bars)-1] == 1, "%s: %d expiries; want %d", name, p.Expiries, c.due)
	}
}

// The page's buttons work, and other sites cannot press them.
func TestPage(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	p := program
	p.Run = func(d *demo.Show) demo.Problems {
		s := newShow(d)
		s.begin(on)
		page := httptest.NewServer(s.handler())
		defer page.Close()
		do := func(method, path, mode, origin string, want int) string {
			t.Helper()
			req := redistest.Must(http.NewRequestWithContext(t.Context(), method, page.URL+path, strings.NewReader("mode="+mode)))(t)
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set("Origin", origin)
			res := redistest.Must(http.DefaultClient.Do(req))(t)
			defer res.Body.Close()
			redistest.Check(t, res.StatusCode == want && strings.Contains(res.Header.Get("Content-Security-Policy"), "default-src 'none'"),
				"%s %s %s: %s, %v", method, path, mode, res.Status, res.Header)
			return string(redistest.Must(io.ReadAll(res.Body))(t))
		}
		for _, path := range []string{"/", "/app.js", "/style.css"} {
			do("GET", path, "", "", 200)
		}
		do("POST", "/mode", "off", "http://elsewhere.example", 403)
		do("POST", "/mode", "sideways", page.URL, 400)
		do("POST", "/mode", "off", page.URL, 200)
		do("POST", "/invalidate", "", page.URL, 200)
		state := do("GET", "/state", "", "", 200)
		redistest.Check(t, strings.Contains(state, `"mode":"off","rows":[{"mode":"off"`) && strings.Contains(state, `{"mode":"on"`), "the state is %s", state)
		return nil
	}
	_, err := p.Show(t.Context(), io.Discard)
	redistest.WantErr(t, err)
}
