package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// output is what go test prints, two modules of it.
const output = `server: redis-7.0.15
goos: linux
pkg: github.com/leasehold-go/leasehold/bench
cpu: Some CPU
BenchmarkLonePair/background-2   	     100	        40.00 floor-µs	        50.00 mutex-µs
BenchmarkLonePair/background-2   	     100	       140.00 floor-µs	       161.00 mutex-µs
BenchmarkLonePair/background-2   	     100	        90.00 floor-µs	       105.00 mutex-µs
BenchmarkManyKeys/goroutines=128-2	       3	         5.00 mutex-µs	         4.50 piped-floor-µs
BenchmarkManyKeys/goroutines=5-2 	       3	         1.00 mutex-µs	         0.90 piped-floor-µs
BenchmarkManyKeys/other-2        	       3	         1.00 mutex-µs
BenchmarkLoneAllocs-2            	    2000	    171815 ns/op	    2454 B/op	      20 allocs/op
BenchmarkNothing-2               	       1	         0 a-µs	         0 b-µs	         3 c-µs
PASS
ok  	github.com/leasehold-go/leasehold/bench	8.502s
pkg: github.com/leasehold-go/leasehold/bench/peers
BenchmarkManyKeys/goroutines=128-2	       3	         6.00 mutex-µs	        12.00 redislock-µs
BenchmarkContended-2             	       3	         6.00 mutex-p10-ms	        12.00 mutex-p90-ms
BenchmarkNetworkContended-2 30 400 floor-turns/s 380 mutex-turns/s 200 redislock-turns/s 1.1 mutex-longest/mean 0.95 mutex-fewest/most
PASS
`

func read(t *testing.T, text string) *Input {
	t.Helper()
	in := new(Input)
	noError(t, in.Read("output", text))
	return in
}

func check(t *testing.T, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func value[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func rowOf(t *testing.T, columns string) Row {
	t.Helper()
	return value(parseRows("== q\nr | what | " + columns))(t)[0]
}

func figure(t *testing.T, in *Input, columns string) Figure {
	t.Helper()
	return Figures(in, []Row{rowOf(t, columns)})[0]
}

func TestLinesAreToldApartByModule(t *testing.T) {
	in := read(t, output)
	for columns, want := range map[string]string{
		"bench LonePair/background | floor-µs | µs | |":     "90 µs (40–140)",
		"bench ManyKeys/goroutines=128 | mutex-µs | | |":    "5",
		"peers ManyKeys/goroutines=128 | mutex-µs | | |":    "6",
		"bench LoneAllocs | ns/op | ns | |":                 "171,815 ns", // as printed, not in seconds
		"bench LoneAllocs | allocs/op | | |":                "20",
		"bench LonePair/background | mutex-µs | µs | ≤1 | ": "105 µs (50–161)",
	} {
		if got := figure(t, in, columns).String(); got != want {
			t.Errorf("%s is %s; want %s", columns, got, want)
		}
	}
	for key, want := range map[string]string{"cpu": "Some CPU", "server": "redis-7.0.15", "processors": "2", "go": ""} {
		if got := in.Config(key); got != want {
			t.Errorf("%s is %q; want %q", key, got, want)
		}
	}
	check(t, len(in.Warnings) <= 0, "warnings: %q", in.Warnings)
	if points := bySize(in, Bench{"bench", "ManyKeys"}, "mutex-µs"); len(points) != 2 || points[0].X != 5 || points[1].Y != 5 {
		t.Errorf("the points by size are %v", points)
	}
}

func TestBadOutputIsToldOf(t *testing.T) {
	for _, end := range []string{
		"--- FAIL: BenchmarkContended-2\n", "BenchmarkContended-2 \t--- FAIL: BenchmarkContended-2\n",
		"FAIL\tgithub.com/leasehold-go/leasehold/bench [build failed]\n", "panic: oh\n",
	} {
		check(t, new(Input).Read("output", output+end) != nil, "a run that ends with %q was read", end)
	}
	if in := read(t, output+"BenchmarkHit/100B-2 \t 12 \t one hit-µs\n"); len(in.Warnings) != 1 {
		t.Errorf("warnings: %q; want one", in.Warnings)
	}
}

// The figure is made within each repetition: 10, 21 and 15 µs above the floor.
func TestFiguresAreMadeWithinARepetition(t *testing.T) {
	in := read(t, output)
	for formula, want := range map[string][]float64{
		"mutex-µs - floor-µs":      {10, 21, 15},
		"mutex-µs / floor-µs":      {1.25, 1.15, 105. / 90},
		"mutex-µs":                 {50, 161, 105},
		"1000 mutex-µs / floor-µs": {1250, 1150, 105000. / 90},
		"floor-µs ~ mutex-µs":      {1.25, 1.15, 105. / 90},
	} {
		got := figure(t, in, "bench LonePair/background | "+formula+" | | |").Values
		check(t, slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }),
			"%s: %v; want %v", formula, got, want)
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("the median of four is %v", got)
	}
}

func TestWhatIsMissingIsAnError(t *testing.T) {
	in := read(t, output)
	// One repetition without it is as bad as all.
	partly := read(t, output+"pkg: github.com/leasehold-go/leasehold/bench\nBenchmarkLonePair/background-2 \t 100 \t 40 floor-µs\n")
	for columns, in := range map[string]*Input{
		"bench LonePair/background | semaphore-µs | | |": in,
		"peers LonePair/background | mutex-µs | | |":     in,
		"bench LonePair | mutex-µs | | |":                in,
		"bench LonePair/background | mutex-µs | | |":     partly,
	} {
		if f := figure(t, in, columns); !errors.Is(f.Err, errMissing) || f.String() != "–" {
			t.Errorf("%s: %v %v", columns, f, f.Err)
		}
	}
	for _, formula := range []string{"a-µs / b-µs", "c-µs / b-µs"} {
		if f := figure(t, in, "bench Nothing | "+formula+" | | |"); f.Err == nil {
			t.Errorf("%s: %v is made of nothing", formula, f)
		}
	}
}

func TestCheckAndVerdict(t *testing.T) {
	in := read(t, output)
	const above = "bench LonePair/background | mutex-µs - floor-µs | | " // 10, 15, 21
	for columns, c := range map[string]struct {
		fails   bool
		verdict string
	}{
		above + "≤15 | ≤15":                                      {false, "reached"},
		above + "≤14.9 | ≤14.9":                                  {true, "not reached"},
		above + "≥15.1 | ≥15.1":                                  {true, "not reached"},
		above + "≥15 | ≥15":                                      {false, "reached"},
		above + "≤20 | each ≤20":                                 {true, "not reached"},
		above + "≤21 | each ≤21":                                 {false, "reached"},
		above + "|":                                              {false, ""},
		above + "≤12 | ≤15":                                      {false, "not reached"},
		"bench LoneAllocs | allocs/op | | =20 | each =20":        {false, "reached"},
		"bench LoneAllocs | allocs/op | | =19 | each =19":        {true, "not reached"},
		"bench LonePair/background | none-µs | | ≤1e9 | ≤1e9":    {true, "not measured"},
		"bench LonePair/background | none-µs | | | ":             {true, ""},
		"peers LonePair | mutex-µs | | ≥0 | each ≥0":             {true, "not measured"},
		"bench LonePair/background | mutex-µs | µs | | each ≤51": {true, ""},
	} {
		f := figure(t, in, columns)
		failed := Check([]Figure{f})
		check(t, (len(failed) > 0) == c.fails && f.Verdict() == c.verdict,
			"%s: failed: %q, verdict %q", columns, failed, f.Verdict())
		for _, line := range failed {
			check(t, strings.HasPrefix(line, "r: "), "%s: %q doesn't name the row", columns, line)
		}
	}
	failed := Check([]Figure{figure(t, in, above+"| ≤12")})[0]
	for _, want := range []string{"15 (10–21)", "≤ 12", "mutex-µs 105", "floor-µs 90"} {
		check(t, strings.Contains(failed, want), "%q has no %q", failed, want)
	}
}

func TestSelect(t *testing.T) {
	all := value(parseRows("== q\na1 | what | bench A | µs | | |\na2 | what | peers A | µs | | |\n== other\nb1 | what | bench B | µs | | |\n"))(t)
	for list, want := range map[string]string{
		"": "a1 a2 b1", "bench": "a1 b1", "peers": "a2", "bench,-other": "a1", "-a1": "a2 b1", "b1,a2": "b1 a2", "q,a1": "a1 a2",
	} {
		rows := value(Select(all, list))(t)
		var names []string
		for _, r := range rows {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q selects %s; want %s", list, got, want)
		}
	}
	for _, list := range []string{"benches", "bench,", "a1,-a1"} {
		if rows, err := Select(all, list); err == nil {
			t.Errorf("%q selects %v", list, rows)
		}
	}
}

// A guard limit that is stricter than the bar would fail what reaches it, and a
// bar without one would never be looked at.
func TestRows(t *testing.T) {
	var names []string
	for _, r := range Rows {
		check(t, !slices.Contains(names, r.Name), "two rows are called %s", r.Name)
		names = append(names, r.Name)
		check(t, r.What != "" && r.Question != "" && (r.Bench.Module == "bench" || r.Bench.Module == "peers"),
			"%s is not complete", r.Name)
		check(t, r.Bar == (Limit{}) || r.Guard != Limit{} && r.Guard.Keeps(r.Bar.value),
			"%s: the guard is %s, the bar %s", r.Name, r.Guard.With(""), r.Bar.With(""))
	}
	check(t, len(names) >= 100, "%d rows", len(names))
	for _, bad := range []string{"r | what | bench A | µs | |", "r | what | A | µs | | |", "r | what | bench A | a / | | |", "r | what | bench A | a | | 3 |", "r | what | bench A | a | | | ≤x"} {
		if rows, err := parseRows(bad); err == nil {
			t.Errorf("%q is read as %v", bad, rows)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 20: "20", 1_234_567.8: "1,234,568", 123.4: "123", 12.34: "12.3", 1.234: "1.23", 0.901: "0.90", 0.0123: "0.012", -34.56: "-34.6", -1234.5: "-1,234", -123.4: "-123",
	} {
		if got := number(v, ""); got != want {
			t.Errorf("%v is written %s; want %s", v, got, want)
		}
	}
}

func TestPage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "docs")
	in := read(t, output)
	page := Page{in, Figures(in, Rows)}
	check(t, page.WriteLead(dir) != nil, "no error where there is no page")
	noError(t, page.Write(dir))
	benchmarks, readme := filepath.Join(dir, "benchmarks.md"), filepath.Join(dir, "..", "README.md")
	text := value(os.ReadFile(benchmarks))(t)
	for _, want := range []string{
		"Some CPU, 2 processors", "redis-7.0.15", "go not told", "1 repetitions at least",
		"| 15 µs (10–21) | **≤ 12 µs** |", // lone-floor
		"| 20 | ≤ 24 |",                   // lone-allocs
		"| – | **≤ 1.08** |",              // not measured
		"| one key, 64 goroutines: turns per second to those that the holding and one round trip allow | 0.95 | ≥ 0.95 |",
		"What falls short", "(bench/many.svg)",
	} {
		check(t, strings.Contains(string(text), want), "the page has no %q", want)
	}
	for _, part := range strings.Split(string(text), "](")[1:] {
		name, _, _ := strings.Cut(part, ")")
		if svg, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(svg), "</svg>") {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, !strings.Contains(string(text), "\n\n\n"), "the page has gaps")

	// The first section and the README's table are written in the place of those before.
	const before, after = "# leasehold\n\n", "\n## more\n"
	noError(t, os.WriteFile(readme, []byte(before+"<!-- readme: begin -->\nOLD\n<!-- readme: end -->\n"+after), 0o644))
	for range 2 { // what was written can be written again
		noError(t, page.WriteLead(dir))
	}
	again, err := os.ReadFile(benchmarks)
	check(t, err == nil && string(again) == string(text), "the page is another one: %v\n%s", err, again)
	table, err := os.ReadFile(readme)
	got := string(table)
	check(t, err == nil && strings.HasPrefix(got, before+"<!-- ") && strings.HasSuffix(got, " -->\n"+after) &&
		!strings.Contains(got, "OLD") && strings.Contains(got, "0.95 of what the holding and one round trip allow; 1.90 × redislock's"),
		"the README is (%v)\n%s", err, got)
}
