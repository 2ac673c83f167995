package main

import (
	"context"
	"encoding/json"
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
	"github.com/leasehold-go/leasehold/singleflight"
)

var quick = settings{
	headless: true, servers: 3, clients: 15, ttl: 400 * time.Millisecond, staleFor: 200 * time.Millisecond,
	load: 50 * time.Millisecond, phase: 1200 * time.Millisecond,
}

func TestMain(m *testing.M) { demotest.Main(m, quick.program()) }

func TestHeadless(t *testing.T) {
	out := demotest.Check(t, quick.program())
	for _, want := range []string{`(?m)^off +\d+ +\d+ +\d+`, `(?m)^on +\d+ +\d+ +\d+ +1 +0`, `(?m)^stale +\d+ +\d+ +\d+ +1 `, `(?m)^near +\d+ +\d+ +\d+ +1 `, `exactly one load`} {
		redistest.Check(t, regexp.MustCompile(want).MatchString(out), "the output has no %s", want)
	}
}

// with runs a test on servers of its own.
func with(t *testing.T, set settings, test func(s *show)) {
	t.Helper()
	t.Setenv("REDIS_URL", "")
	p := set.program()
	p.Run = func(d *demo.Show) demo.Problems { test(newShow(d, set)); return nil }
	if _, err := p.Show(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
}

// An error does not quote the URL, which may hold a password.
func TestNoServer(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://:secret@127.0.0.1:1/0?max_retries=-1")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := quick.program().Show(ctx, io.Discard); err == nil || ctx.Err() != nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestVerdict(t *testing.T) {
	good := func(m mode) *phase {
		p := newPhase(m, "k", quick)
		p.tally.expiries, p.tally.loads, p.tally.most = 2, 2, 1
		p.sources = map[singleflight.Source]int{singleflight.Cached: 9, singleflight.Stale: 2, singleflight.Shared: 3, singleflight.Loaded: 2, singleflight.Near: 5}
		p.seen[1], p.seen[2] = 0, 0
		if m == off {
			p.tally.loads = 40
		}
		return p
	}
	for _, m := range modes {
		if problems := good(m).verdict(); len(problems) > 0 {
			t.Errorf("nothing is wrong, but: %q", problems)
		}
	}
	for want, c := range map[string]struct {
		mode  mode
		spoil func(p *phase)
	}{
		"3 loads in 2 expiries: [why]":   {on, func(p *phase) { p.tally.loads, p.seen[3], p.tally.surplus = 3, 0, []string{"why"} }},
		"3 loads in 2 expiries":          {stale, func(p *phase) { p.tally.loads, p.seen[3] = 3, 0 }},
		"2 loads ran at once":            {on, func(p *phase) { p.tally.most = 2 }},
		"values of 1 loads, of 2":        {on, func(p *phase) { delete(p.seen, 2) }},
		"values of 0 loads, of 2":        {stale, func(p *phase) { clear(p.seen) }},
		"3 answers had a value as fresh": {on, func(p *phase) { p.overdue = 3 }},
		"nothing expired":                {on, func(p *phase) { p.tally.expiries, p.tally.loads = 1, 1; delete(p.seen, 2) }},
		"nothing was served from the":    {on, func(p *phase) { p.sources[singleflight.Cached] = 0 }},
		"nobody waited":                  {on, func(p *phase) { p.sources[singleflight.Shared] = 0 }},
		"nothing was served from memory": {near, func(p *phase) { p.sources[singleflight.Near] = 0 }},
		"nothing was served stale":       {stale, func(p *phase) { p.sources[singleflight.Stale] = 0 }},
		"3 loads in 2 expiries is no":    {off, func(p *phase) { p.tally.loads = 3 }},
		"0 loads in 0 expiries is no":    {off, func(p *phase) { p.tally.loads, p.tally.expiries = 0, 0 }},
		"no request was answered":        {off, func(p *phase) { clear(p.sources) }},
		"2 requests failed, such as: x":  {on, func(p *phase) { p.errors, p.failed = 2, "x" }},
	} {
		p := good(c.mode)
		c.spoil(p)
		if problems := p.verdict(); len(problems) != 1 || !strings.Contains(problems[0], want) {
			t.Errorf("got %q; want one line with %q", problems, want)
		}
	}
}

// The verdict is only as good as the count of expiries: each of these says what happens at
// the origin ("+ 7" a load begins, "- 7" it ends, "x 7" it fails, "!" an invalidation; times
// in s), and how many loads were due. The TTL is 10 s.
func TestTally(t *testing.T) {
	type step struct {
		what string
		load int
		at   float64
	}
	for name, c := range map[string]struct {
		steps           []step
		expiries, loads int
		most            int
		surplus         string
	}{
		"one load in each expiry":             {[]step{{"+", 1, 0}, {"-", 1, 2}, {"+", 2, 12}, {"-", 2, 14}, {"+", 3, 30}, {"-", 3, 31}}, 3, 3, 1, ""},
		"two at once":                         {[]step{{"+", 1, 0}, {"+", 2, 1}, {"-", 1, 2}, {"-", 2, 3}, {"+", 3, 13}}, 2, 3, 2, "load 2 began while another ran"},
		"after two at once the last counts":   {[]step{{"+", 1, 0}, {"+", 2, 1}, {"-", 1, 2}, {"-", 2, 6}, {"+", 3, 12}}, 1, 3, 2, "load 3 began while a value was fresh"},
		"just after another":                  {[]step{{"+", 1, 0}, {"-", 1, 2}, {"+", 2, 2.001}}, 1, 2, 1, "fresh, for 9.999s more"},
		"an early expiry":                     {[]step{{"+", 1, 0}, {"-", 1, 2}, {"+", 2, 9.5}}, 2, 2, 1, ""},
		"a too early one":                     {[]step{{"+", 1, 0}, {"-", 1, 2}, {"+", 2, 9.499}}, 1, 2, 1, "while a value was fresh"},
		"a failed load leaves nothing fresh":  {[]step{{"+", 1, 0}, {"x", 1, 1}, {"+", 2, 2}}, 2, 2, 1, ""},
		"a stampede":                          {[]step{{"+", 1, 0}, {"+", 2, 0}, {"+", 3, 1}, {"+", 4, 1}, {"-", 1, 2}, {"-", 2, 2}}, 1, 4, 4, "load 4 began"},
		"an invalidation makes a load due":    {[]step{{"+", 1, 0}, {"-", 1, 2}, {"!", 0, 2}, {"+", 2, 3}, {"-", 2, 5}, {"+", 3, 6}}, 2, 3, 1, "load 3 began while a value was fresh"},
		"after an overtaken load one is due":  {[]step{{"+", 1, 0}, {"!", 0, 1}, {"-", 1, 2}, {"+", 2, 3}}, 2, 2, 1, ""},
		"beside an overtaken load one is due": {[]step{{"+", 1, 0}, {"!", 0, 1}, {"+", 2, 2}, {"+", 3, 2}, {"-", 1, 3}, {"-", 2, 4}, {"-", 3, 4}}, 2, 3, 3, "load 3 began while another ran"},
	} {
		tally, running := tally{ttl: 10 * time.Second}, map[int]load{}
		for _, s := range c.steps {
			at := time.Duration(s.at * float64(time.Second))
			switch s.what {
			case "+":
				running[s.load], _ = tally.begin(at)
			case "!":
				tally.invalidate()
			default:
				tally.end(running[s.load], at, s.what == "-")
			}
		}
		redistest.Check(t, tally.expiries == c.expiries && tally.loads == c.loads && tally.most == c.most,
			"%s: %d expiries, %d loads, %d at once; want %d, %d, %d", name, tally.expiries, tally.loads, tally.most, c.expiries, c.loads, c.most)
		if said := strings.Join(tally.surplus, "; "); !strings.Contains(said, c.surplus) || c.surplus == "" && said != "" {
			t.Errorf("%s: said %q; want %q", name, said, c.surplus)
		}
	}
}

// The page's buttons work, and other sites cannot press them.
func TestPage(t *testing.T) {
	with(t, quick, func(s *show) {
		s.begin(on)
		page := httptest.NewServer(s.handler())
		defer page.Close()
		do := func(method, path, mode, origin string, want int) {
			t.Helper()
			req := redistest.Must(http.NewRequestWithContext(t.Context(), method, page.URL+path, strings.NewReader("mode="+mode)))(t)
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set("Origin", origin)
			res := redistest.Must(http.DefaultClient.Do(req))(t)
			defer res.Body.Close()
			redistest.Check(t, res.StatusCode == want && strings.Contains(res.Header.Get("Content-Security-Policy"), "default-src 'none'"),
				"%s %s %s: %s, %v", method, path, mode, res.Status, res.Header)
			if path == "/state" {
				var now state
				redistest.NoError(t, json.NewDecoder(res.Body).Decode(&now))
				redistest.Check(t, now.Mode == off && len(now.Rows) == 2, "the state is %+v", now)
			}
		}
		for _, path := range []string{"/", "/app.js", "/style.css"} {
			do("GET", path, "", "", 200)
		}
		do("POST", "/mode", "off", "http://elsewhere.example", 403)
		do("POST", "/mode", "sideways", page.URL, 400)
		do("POST", "/mode", "off", page.URL, 200)
		do("POST", "/invalidate", "", page.URL, 200)
		do("GET", "/state", "", "", 200)
	})
}
