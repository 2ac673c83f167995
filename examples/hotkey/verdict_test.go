package main

import (
	"strings"
	"testing"
	"time"
)

// good is results that nothing is wrong with.
func good() []result {
	return []result{
		{
			mode: off, all: counts{Hits: 700, Loaded: 240}, expiries: 2, loads: 240, most: 120, seen: 240,
			p99: 1077 * time.Millisecond,
		},
		{
			mode: on, all: counts{Hits: 1200, Waits: 400, Loaded: 4}, expiries: 4, loads: 4, most: 1, seen: 4,
			p99: 254 * time.Millisecond,
		},
		{
			mode: onStale, all: counts{Hits: 1500, Stale: 300, Waits: 119, Loaded: 1}, expiries: 4, loads: 4, most: 1, seen: 3,
			p99: 9 * time.Millisecond,
		},
	}
}

func TestVerdict(t *testing.T) {
	if p := verdict(good()); len(p) != 0 {
		t.Fatalf("nothing is wrong, but: %q", p)
	}
	for want, spoil := range map[string]func(r []result){
		"protection on: 5 loads in 4 expiries":            func(r []result) { r[1].loads, r[1].seen = 5, 5 },
		"on, serving stale: 5 loads in 4 expiries":        func(r []result) { r[2].loads, r[2].seen = 5, 5 },
		"protection on: load 3 began":                     func(r []result) { r[1].surplus = []string{"load 3 began while another ran"} },
		"protection on: 2 loads ran at once":              func(r []result) { r[1].most = 2 },
		"got the values of 3 loads, of 4 that there were": func(r []result) { r[1].seen = 3 },
		"got the values of 2 loads, of 4 that there were": func(r []result) { r[2].seen = 2 },
		"got the values of 5 loads, of 4 that there were": func(r []result) { r[2].seen = 5 },
		"3 answers had a value as fresh":                  func(r []result) { r[1].overdue = 3 },
		"nothing expired":                                 func(r []result) { r[1].expiries, r[1].loads, r[1].seen = 1, 1, 1 },
		"nothing was served from the cache":               func(r []result) { r[1].all.Hits = 0 },
		"nobody waited":                                   func(r []result) { r[1].all.Waits = 0 },
		"nothing was served stale":                        func(r []result) { r[2].all.Stale = 0 },
		"protection off: 3 loads in 2 expiries":           func(r []result) { r[0].loads = 3 },
		"protection off: the origin was never asked":      func(r []result) { r[0].loads, r[0].expiries = 0, 0 },
		"protection on: the origin was never asked":       func(r []result) { r[1].loads, r[1].expiries = 0, 0 },
		"protection on: no request was answered":          func(r []result) { r[1].all = counts{} },
		"2 requests failed, such as: no answer":           func(r []result) { r[1].all.Errors, r[1].failed = 2, "no answer" },
	} {
		results := good()
		spoil(results)
		if p := verdict(results); len(p) != 1 || !strings.Contains(p[0], want) {
			t.Errorf("got %q; want one line with %q", p, want)
		}
	}
}

func TestTable(t *testing.T) {
	want := `
                                               per     most
phase              requests expiries  loads expiry  at once stale waits      p99
protection off          940        2    240  120.0      120     0     0  1077 ms
protection on          1604        4      4    1.0        1     0   400   254 ms
on, serving stale      1920        4      4    1.0        1   300   119   9.0 ms
`
	if got := table(good()); got != want[1:] {
		t.Errorf("got\n%swant%s", got, want)
	}
}
