package main

import (
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
BenchmarkLoneAllocs-2            	    2000	    171815 ns/op	    2454 B/op	      20 allocs/op
PASS
ok  	github.com/leasehold-go/leasehold/bench	8.502s
pkg: github.com/leasehold-go/leasehold/bench/peers
BenchmarkManyKeys/goroutines=128-2	       3	         6.00 mutex-µs	        12.00 redislock-µs
PASS
`

func read(t *testing.T, text string) *Input {
	t.Helper()
	in := new(Input)
	if err := in.Read("output", strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return in
}

func TestLinesAreToldApartByModule(t *testing.T) {
	in := read(t, output)
	for _, want := range []struct {
		bench Bench
		unit  string
		n     int
		v     float64
	}{
		{of(ours, "LonePair/background"), "floor-µs", 3, 90},
		{of(ours, crowd), "mutex-µs", 1, 5},
		{of(peers, crowd), "mutex-µs", 1, 6},
		{of(ours, "LoneAllocs"), "ns/op", 1, 171815}, // as printed, not in seconds
		{of(ours, "LoneAllocs"), "allocs/op", 1, 20},
	} {
		if n := len(in.Of(want.bench)); n != want.n {
			t.Errorf("%v has %d lines; want %d", want.bench, n, want.n)
		}
		if s, ok := in.Spread(want.bench, want.unit); !ok || s.Median != want.v {
			t.Errorf("%v %s is %v, %v; want %v", want.bench, want.unit, s.Median, ok, want.v)
		}
	}
	for key, want := range map[string]string{"cpu": "Some CPU", "server": "redis-7.0.15", "processors": "2", "go": ""} {
		if got := in.Config(key); got != want {
			t.Errorf("%s is %q; want %q", key, got, want)
		}
	}
	if len(in.Warnings) > 0 {
		t.Errorf("warnings: %q", in.Warnings)
	}
}

func TestAFailedRunIsRefused(t *testing.T) {
	for _, end := range []string{
		"--- FAIL: BenchmarkContended-2\n", "BenchmarkContended-2 \t--- FAIL: BenchmarkContended-2\n",
		"FAIL\tgithub.com/leasehold-go/leasehold/bench [build failed]\n", "panic: oh\n",
	} {
		if err := new(Input).Read("output", strings.NewReader(output+end)); err == nil {
			t.Errorf("a run that ends with %q was read", end)
		}
	}
}

func TestABrokenLineIsToldOf(t *testing.T) {
	in := read(t, output+"BenchmarkHit/100B-2 \t 12 \t one hit-µs\n")
	if len(in.Warnings) != 1 {
		t.Errorf("warnings: %q; want one", in.Warnings)
	}
}

func TestSizesAreInOrder(t *testing.T) {
	in := read(t, "pkg: x/bench\nBenchmarkGrow/keys=100-2 1 1 µs\nBenchmarkGrow/keys=5-2 1 1 µs\nBenchmarkGrow/other-2 1 1 µs\nBenchmarkGrow/keys=100-2 1 1 µs\n")
	got := in.Sizes(of(ours, "Grow"))
	if len(got) != 2 || size(got[0]) != 5 || size(got[1]) != 100 {
		t.Errorf("%v", got)
	}
}
