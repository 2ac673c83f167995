package main

import (
	"errors"
	"math"
	"testing"
)

var lonely = of(ours, "LonePair/background")

// The figure is made within each repetition: 10, 21 and 15 µs above the floor,
// where the medians of both columns are 15 apart by accident only.
func TestFiguresAreMadeWithinARepetition(t *testing.T) {
	in := read(t, output)
	for name, c := range map[string]struct {
		f    Formula
		want Spread
	}{
		"difference": {difference(lonely, "mutex-µs", "floor-µs"), Spread{15, 10, 21}},
		"ratio":      {ratio(lonely, "mutex-µs", "floor-µs"), Spread{105. / 90, 1.15, 1.25}},
		"metric":     {metric(lonely, "mutex-µs"), Spread{105, 50, 161}},
		"trips":      {roundTrips(lonely, "mutex-µs", "floor-µs"), Spread{105000. / 90, 1150, 1250}},
		"apart":      {apart(lonely, "floor-µs", "mutex-µs"), Spread{105. / 90, 1.15, 1.25}},
	} {
		figures, metrics, err := c.f.Evaluate(in)
		if err != nil {
			t.Fatal(err)
		}
		got := spread(figures)
		if math.Abs(got.Median-c.want.Median) > 1e-9 || math.Abs(got.Min-c.want.Min) > 1e-9 || math.Abs(got.Max-c.want.Max) > 1e-9 {
			t.Errorf("%s: %v; want %v", name, got, c.want)
		}
		if len(metrics) != len(c.f.Units) {
			t.Errorf("%s: %d metrics are told; want %d", name, len(metrics), len(c.f.Units))
		}
	}
}

func TestSpreadOfAnEvenNumber(t *testing.T) {
	if got := spread([]float64{4, 1, 2, 3}); got != (Spread{2.5, 1, 4}) {
		t.Errorf("%v", got)
	}
}

func TestMissingMetricIsAnError(t *testing.T) {
	in := read(t, output)
	for _, f := range []Formula{
		metric(lonely, "semaphore-µs"),
		metric(of(peers, "LonePair/background"), "mutex-µs"),
		metric(of(ours, "LonePair"), "mutex-µs"),
	} {
		if _, _, err := f.Evaluate(in); !errors.Is(err, errMissing) {
			t.Errorf("%v %v: %v", f.Bench, f.Units, err)
		}
	}
	// One repetition without it is as bad as all.
	in = read(t, output+"pkg: github.com/leasehold-go/leasehold/bench\nBenchmarkLonePair/background-2 \t 100 \t 40 floor-µs\n")
	if _, _, err := metric(lonely, "mutex-µs").Evaluate(in); !errors.Is(err, errMissing) {
		t.Errorf("a repetition without the metric: %v", err)
	}
}

func TestNoFigureIsMadeOfNothing(t *testing.T) {
	in := read(t, "pkg: x/bench\nBenchmarkX-2 1 0 a-µs 0 b-µs 3 c-µs\n")
	for _, over := range []string{"a-µs", "c-µs"} {
		if got, _, err := ratio(of(ours, "X"), over, "b-µs").Evaluate(in); err == nil {
			t.Errorf("%s by nothing is %v", over, got)
		}
	}
}

func TestLabel(t *testing.T) {
	for metric, want := range map[string][2]string{
		"mutex-p99-µs":      {"mutex p99", "µs"},
		"allocs/op":         {"", "allocs/op"},
		"turns-predicted/s": {"turns predicted", "/s"},
		"cpu-%":             {"cpu", "%"},
	} {
		if who, unit := label(metric); who != want[0] || unit != want[1] {
			t.Errorf("%s: %q, %q", metric, who, unit)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 20: "20", 1_234_567.8: "1,234,568", 123.4: "123", 12.34: "12.3", 1.234: "1.23", 0.901: "0.90", 0.0123: "0.012", -34.56: "-34.6", -1234.5: "-1,234",
	} {
		if got := number(v, ""); got != want {
			t.Errorf("%v is written %s; want %s", v, got, want)
		}
	}
}
