package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Formula makes a figure of metrics of one line: what isn't on one line was not
// measured in turns, and is not compared.
type Formula struct {
	Bench Bench
	Units []string
	of    func(v []float64) float64 // of the metrics, in their order
}

// metric is one metric as it is.
func metric(b Bench, unit string) Formula {
	return Formula{b, []string{unit}, func(v []float64) float64 { return v[0] }}
}

// ratio is over divided by under.
func ratio(b Bench, over, under string) Formula {
	return Formula{b, []string{over, under}, func(v []float64) float64 { return v[0] / v[1] }}
}

// difference is from less what.
func difference(b Bench, from, what string) Formula {
	return Formula{b, []string{from, what}, func(v []float64) float64 { return v[0] - v[1] }}
}

// roundTrips is a time in ms in round trips, of which one is given in µs.
func roundTrips(b Bench, millis, micros string) Formula {
	return Formula{b, []string{millis, micros}, func(v []float64) float64 { return 1000 * v[0] / v[1] }}
}

// apart is by what factor two metrics differ, whichever is greater.
func apart(b Bench, one, other string) Formula {
	return Formula{b, []string{one, other}, func(v []float64) float64 { return max(v[0]/v[1], v[1]/v[0]) }}
}

// Spread is a figure over the repetitions.
type Spread struct{ Median, Min, Max float64 }

// spread is that of some values, at least one.
func spread(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

// Evaluate computes the figure of each repetition, and what its metrics were.
func (f Formula) Evaluate(in *Input) (figures []float64, metrics []Spread, err error) {
	columns := make([][]float64, len(f.Units))
	for i, unit := range f.Units {
		if columns[i], err = in.Column(f.Bench, unit); err != nil {
			return nil, nil, err
		}
		metrics = append(metrics, spread(columns[i]))
	}
	for n := range columns[0] {
		v := make([]float64, len(columns))
		for i := range columns {
			v[i] = columns[i][n]
		}
		figure := f.of(v)
		if math.IsNaN(figure) || math.IsInf(figure, 0) {
			return nil, nil, fmt.Errorf("%v, repetition %d: no figure can be made of %v", f.Bench, n+1, v)
		}
		figures = append(figures, figure)
	}
	return figures, metrics, nil
}

var errMissing = errors.New("missing from the input")

// Column is a metric of all repetitions. It is an error if one has it not.
func (in *Input) Column(b Bench, unit string) ([]float64, error) {
	lines := in.Of(b)
	if len(lines) == 0 {
		return nil, fmt.Errorf("%v: %w", b, errMissing)
	}
	var values []float64
	for i, l := range lines {
		v, ok := l.Metrics[unit]
		if !ok {
			return nil, fmt.Errorf("%v, repetition %d: metric %s: %w", b, i+1, unit, errMissing)
		}
		values = append(values, v)
	}
	return values, nil
}

// Spread is a metric over the repetitions, if all have it.
func (in *Input) Spread(b Bench, unit string) (s Spread, ok bool) {
	values, err := in.Column(b, unit)
	if err != nil {
		return Spread{}, false
	}
	return spread(values), true
}

// label tells the unit of a metric from what it is of: "mutex-p99-µs" is mutex
// p99, in µs.
func label(metric string) (who, unit string) {
	i := strings.LastIndex(metric, "-")
	if i < 0 {
		return "", metric
	}
	who, unit = strings.ReplaceAll(metric[:i], "-", " "), metric[i+1:]
	if rest, ok := strings.CutPrefix(unit, "predicted"); ok {
		return who + " predicted", rest
	}
	return who, unit
}
