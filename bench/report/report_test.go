package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
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
BenchmarkPartly-2                	       1	         1 a-µs
BenchmarkPartly-2                	       1	         1 b-µs
BenchmarkNothing-2               	       1	         0 a-µs	         0 b-µs	         3 c-µs
PASS
ok  	github.com/leasehold-go/leasehold/bench	8.502s
pkg: github.com/leasehold-go/leasehold/bench/peers
BenchmarkManyKeys/goroutines=128-2	       3	         6.00 mutex-µs	        12.00 redislock-µs
BenchmarkContended-2             	       3	         6.00 mutex-p10-ms	        12.00 mutex-p90-ms
BenchmarkNetworkContended-2 30 400 floor-turns/s 380 mutex-turns/s 200 redislock-turns/s 1.1 mutex-longest/mean 0.95 mutex-fewest/most
PASS
`

func value[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t *testing.T, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}

// saved is a file with that text.
func saved(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "output.txt")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func read(t *testing.T, text string) (*Input, error) {
	t.Helper()
	return ReadFiles([]string{saved(t, text)})
}

func TestFigures(t *testing.T) {
	in := value(read(t, output))(t)
	const pair = "bench LonePair/background | "
	const above = pair + "mutex-µs - floor-µs | | " // made within each repetition: 10, 21, 15
	for columns, want := range map[string]struct {
		figure, verdict string
		keeps           bool
	}{
		pair + "floor-µs | µs | |":                          {"90 µs (40–140)", "", true},
		pair + "mutex-µs / floor-µs | | |":                  {"1.17 (1.15–1.25)", "", true},
		pair + "floor-µs ~ mutex-µs | | |":                  {"1.17 (1.15–1.25)", "", true},
		pair + "floor-µs - mutex-µs | | |":                  {"-15 (-21 to -10)", "", true},
		"bench ManyKeys/goroutines=128 | mutex-µs | | |":    {"5", "", true},
		"peers ManyKeys/goroutines=128 | mutex-µs | | |":    {"6", "", true},
		"bench LoneAllocs | ns/op | ns | |":                 {"171,815 ns", "", true}, // as printed, not in seconds
		above + "≤15 | ≤15":                                 {"15 (10–21)", "reached", true},
		above + "≤14.9 | ≤14.9":                             {"15 (10–21)", "not reached", false},
		above + "≥15.1 | ≥15.1":                             {"15 (10–21)", "not reached", false},
		above + "≥15 | ≥15":                                 {"15 (10–21)", "reached", true},
		above + "≤20 | each ≤20":                            {"15 (10–21)", "not reached", false},
		above + "≤21 | each ≤21":                            {"15 (10–21)", "reached", true},
		above + "≤12 | ≤15":                                 {"15 (10–21)", "not reached", true},
		above + "| each ≤20":                                {"15 (10–21)", "", false},
		"bench LoneAllocs | allocs/op | | =20 | each =20":   {"20", "reached", true},
		"bench LoneAllocs | allocs/op | | =19 | each =19":   {"20", "not reached", false},
		pair + "none-µs | | ≤1e9 | ≤1e9":                    {"–", "not measured", false},
		pair + "none-µs | | |":                              {"–", "", false},
		"peers LonePair | mutex-µs | | ≥0 | each ≥0":        {"–", "not measured", false},
		"bench LonePair | mutex-µs | | |":                   {"–", "", false},
		"bench Partly | a-µs | | |":                         {"–", "", false}, // one repetition without it is as bad as all
		"bench Nothing | a-µs / b-µs | | |":                 {"–", "", false},
		"bench Nothing | c-µs / b-µs | | ≤1e99 | each ≤1e9": {"–", "not measured", false},
	} {
		r := measured(t, in, "== q\nr | what | "+columns)
		failed := r.Failed()
		check(t, r.String() == want.figure && r.Verdict() == want.verdict && (failed == "") == want.keeps,
			"%s is %v (%v), %q, failed: %q", columns, r, r.Err, r.Verdict(), failed)
		check(t, want.keeps || strings.HasPrefix(failed, "r: ") && (r.Err != nil || strings.Contains(failed, want.figure)),
			"%s: %q names no row and figure", columns, failed)
	}
	missing := measured(t, in, "r | what | bench LonePair | mutex-µs | | |")
	check(t, errors.Is(missing.Err, errMissing), "%v", missing.Err)
	if points := bySize(in, Bench{"bench", "ManyKeys"}, "mutex-µs"); len(points) != 2 || points[0].X != 5 || points[1].Y != 5 {
		t.Errorf("the points by size are %v", points)
	}
	got := median([]float64{4, 1, 2, 3})
	check(t, math.Abs(got-2.5) < 1e-9, "the median of four is %v", got)
	if in, err := read(t, output+"BenchmarkHit/100B-2 \t 12 \t one hit-µs\n"); err == nil {
		t.Errorf("a line that is none was read: %v", in)
	}
}

// measured is the only row of a text, measured.
func measured(t *testing.T, in *Input, text string) *Row {
	t.Helper()
	rows := value(parseRows(text))(t)
	Measure(in, rows)
	return rows[0]
}

// Rows are printed and checked by what their labels match. A check of none fails.
func TestSelection(t *testing.T) {
	name := saved(t, output)
	for _, c := range []struct {
		only, skip string
		ok         bool
	}{
		{"^bench/lone/lone-allocs$", "^$", true},
		{"/lone-allocs$", "^bench/", false}, // it is no row of another module
		{"/lone/", "^$", false},             // most are not measured
		{"/lone/", "/lone-[^a]", true},
	} {
		err := run([]string{name}, "", "", true, regexp.MustCompile(c.only), regexp.MustCompile(c.skip))
		check(t, (err == nil) == c.ok, "rows that match %s and not %s: %v", c.only, c.skip, err)
	}
}

// A guard limit that is stricter than the bar would fail what reaches it, and a bar without one would never be looked
// at, unless another row guards the same benchmark.
func TestRows(t *testing.T) {
	var names []string
	rows := value(parseRows(rowsText))(t)
	for _, r := range rows {
		check(t, !slices.Contains(names, r.Name), "two rows are called %s", r.Name)
		names = append(names, r.Name)
		check(t, r.What != "" && r.Question != "" && (r.Bench.Module == "bench" || r.Bench.Module == "peers"),
			"%s is not complete", r.Name)
		guarded := r.Guard != Limit{} && r.Guard.Keeps(r.Bar.value) || r.Guard == Limit{} && r.Unit == "µs" &&
			slices.ContainsFunc(rows, func(other *Row) bool { return other.Bench == r.Bench && other.Unit == "" && other.Guard != Limit{} })
		check(t, r.Bar == (Limit{}) || guarded,
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
		got := number(v, "")
		check(t, got == want, "%v is written %s; want %s", v, got, want)
	}
}

func TestPage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "docs")
	in := value(read(t, output))(t)
	rows := value(parseRows(rowsText))(t)
	Measure(in, rows)
	page := Page{in, rows}
	check(t, page.WriteLead(dir) != nil, "no error where there is no page")
	check(t, page.Write(dir) == nil, "the page cannot be written")
	benchmarks, readme := filepath.Join(dir, "benchmarks.md"), filepath.Join(dir, "..", "README.md")
	text := string(value(os.ReadFile(benchmarks))(t))
	for _, want := range []string{
		"Some CPU, 2 processors", "redis-7.0.15", "go not told", "1 repetitions at least",
		"| 15 µs (10–21) | **≤ 12 µs** |", // lone-floor
		"| 20 | ≤ 24 |",                   // lone-allocs
		"| – | **≤ 1.08** |",              // not measured
		"| one key, 64 goroutines: turns per second to those that the holding and one round trip allow | 0.95 | ≥ 0.95 |",
		"What falls short", "(bench/many.svg)",
	} {
		check(t, strings.Contains(text, want), "the page has no %q", want)
	}
	for _, part := range strings.Split(text, "](")[1:] {
		name, _, _ := strings.Cut(part, ")")
		svg, err := os.ReadFile(filepath.Join(dir, name))
		check(t, err == nil && strings.Contains(string(svg), "</svg>"), "%s: %v", name, err)
	}
	check(t, !strings.Contains(text, "\n\n\n"), "the page has gaps")

	// The first section and the README's table are written in the place of those before.
	const before, after = "# leasehold\n\n", "\n## more\n"
	if err := os.WriteFile(readme, []byte(before+"<!-- readme: begin -->\nOLD\n<!-- readme: end -->\n"+after), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what was written can be written again
		check(t, page.WriteLead(dir) == nil, "the first section cannot be written")
	}
	again := string(value(os.ReadFile(benchmarks))(t))
	check(t, again == text, "the page is another one:\n%s", again)
	got := string(value(os.ReadFile(readme))(t))
	check(t, strings.HasPrefix(got, before+"<!-- ") && strings.HasSuffix(got, " -->\n"+after) &&
		!strings.Contains(got, "OLD") && strings.Contains(got, "0.95 of what the holding and one round trip allow; 1.90 × redislock's"),
		"the README is\n%s", got)
}
