package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Formula makes a figure of metrics of one line of output.
type Formula struct {
	Bench   Bench
	metrics []string
	sign    string // "" for one metric, else what stands between two: "/", "-" or "~"
	times   float64
}

// parseFormula reads "bench LonePair/background" and "mutex-µs - floor-µs".
func parseFormula(bench, text string) (f Formula, err error) {
	var ok bool
	if f.Bench.Module, f.Bench.Name, ok = strings.Cut(bench, " "); !ok {
		return f, fmt.Errorf("%q names no module and benchmark", bench)
	}
	parts := strings.Fields(text)
	f.times = 1
	if n, err := strconv.ParseFloat(text[:strings.IndexByte(text+" ", ' ')], 64); err == nil {
		f.times, parts = n, parts[1:]
	}
	switch {
	case len(parts) == 1:
		f.metrics = parts
	case len(parts) == 3 && strings.Contains("/-~", parts[1]):
		f.metrics, f.sign = []string{parts[0], parts[2]}, parts[1]
	default:
		return f, fmt.Errorf("%q is no formula", text)
	}
	return f, nil
}

func (f Formula) of(v []float64) float64 {
	switch f.sign {
	case "/":
		return f.times * v[0] / v[1]
	case "-":
		return f.times * (v[0] - v[1])
	case "~":
		return max(v[0]/v[1], v[1]/v[0])
	}
	return f.times * v[0]
}

// Figure is what came of a row.
type Figure struct {
	Row    Row
	Values []float64 // one for each repetition
	Of     []float64 // the medians of the formula's metrics
	Err    error     // it could not be computed
}

// Figures computes the rows.
func Figures(in *Input, rows []Row) (all []Figure) {
	for _, r := range rows {
		f := Figure{Row: r}
		f.Err = f.compute(in)
		all = append(all, f)
	}
	return all
}

func (f *Figure) compute(in *Input) error {
	var columns [][]float64
	for _, metric := range f.Row.metrics {
		column, err := in.Column(f.Row.Bench, metric)
		if err != nil {
			return err
		}
		columns = append(columns, column)
		f.Of = append(f.Of, median(column))
	}
	for n := range columns[0] {
		var v []float64
		for _, column := range columns {
			v = append(v, column[n])
		}
		figure := f.Row.of(v)
		if math.IsNaN(figure) || math.IsInf(figure, 0) {
			return fmt.Errorf("%v, repetition %d: no figure can be made of %v", f.Row.Bench, n+1, v)
		}
		f.Values = append(f.Values, figure)
	}
	return nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Keeps reports whether the figure keeps a limit: the median of what a busy
// machine shifts, each repetition of what is counted.
func (f Figure) Keeps(l Limit) bool {
	if f.Err != nil {
		return false
	}
	if !f.Row.Counted {
		return l.Keeps(median(f.Values))
	}
	return !slices.ContainsFunc(f.Values, func(v float64) bool { return !l.Keeps(v) })
}

// Verdict is whether the bar is reached, in a word.
func (f Figure) Verdict() string {
	switch {
	case f.Row.Bar == Limit{}:
		return ""
	case f.Err != nil:
		return "not measured"
	case f.Keeps(f.Row.Bar):
		return "reached"
	}
	return "not reached"
}

// String is the figure: the median, and the spread where there is one.
func (f Figure) String() string {
	if f.Err != nil {
		return "–"
	}
	text := number(median(f.Values), f.Row.Unit)
	low, high := slices.Min(f.Values), slices.Max(f.Values)
	switch {
	case low == high:
		return text
	case low < 0: // a dash would look like another minus
		return fmt.Sprintf("%s (%s to %s)", text, number(low, ""), number(high, ""))
	}
	return fmt.Sprintf("%s (%s–%s)", text, number(low, ""), number(high, ""))
}

// Behind is what the figure was made of.
func (f Figure) Behind() string {
	if f.Err != nil {
		return f.Err.Error()
	}
	var parts []string
	for i, metric := range f.Row.metrics {
		parts = append(parts, metric+" "+number(f.Of[i], ""))
	}
	return strings.Join(parts, ", ")
}

// number writes three digits or so of a figure, and its unit.
func number(v float64, unit string) string {
	var s string
	switch a := math.Abs(v); {
	case v == math.Trunc(v) || a >= 100:
		s = strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		s = strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.1:
		s = strconv.FormatFloat(v, 'f', 2, 64)
	default:
		s = strconv.FormatFloat(v, 'g', 2, 64)
	}
	if a := math.Abs(v); a >= 1000 {
		for i := len(s) - 3; i > len(s)-len(strings.TrimPrefix(s, "-")); i -= 3 {
			s = s[:i] + "," + s[i:]
		}
	}
	if unit != "" {
		s += " " + unit
	}
	return s
}
