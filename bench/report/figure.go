package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Figure is what came of a row.
type Figure struct {
	Row    Row
	Values []float64 // one a repetition
	Spread Spread
	Of     []Spread // of the row's metrics
	Err    error    // it could not be computed
}

// Figures computes the rows.
func Figures(in *Input, rows []Row) (all []Figure) {
	for _, r := range rows {
		f := Figure{Row: r}
		f.Values, f.Of, f.Err = r.Evaluate(in)
		if f.Err == nil {
			f.Spread = spread(f.Values)
		}
		all = append(all, f)
	}
	return all
}

// Keeps reports whether the figure keeps a limit: the median of what a busy
// machine shifts, each repetition of what is counted.
func (f Figure) Keeps(l Limit) bool {
	if f.Err != nil {
		return false
	}
	if !f.Row.Counted {
		return l.Keeps(f.Spread.Median)
	}
	for _, v := range f.Values {
		if !l.Keeps(v) {
			return false
		}
	}
	return true
}

// Verdict is whether the bar is reached, in a word.
func (f Figure) Verdict() string {
	switch {
	case !f.Row.Bar.Set():
		return ""
	case f.Err != nil:
		return "not measured"
	case f.Keeps(f.Row.Bar):
		return "reached"
	}
	return "not reached"
}

// Ratio is the figure: median, and the spread where there is one.
func (f Figure) Ratio() string {
	if f.Err != nil {
		return "–"
	}
	s, unit := f.Spread, f.Row.Unit
	if s.Min == s.Max {
		return number(s.Median, unit)
	}
	if s.Min < 0 { // a dash would look like another minus
		return fmt.Sprintf("%s (%s to %s)", number(s.Median, unit), number(s.Min, ""), number(s.Max, ""))
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Median, unit), number(s.Min, ""), number(s.Max, ""))
}

// Behind is what the figure was made of: the medians of its metrics.
func (f Figure) Behind() string {
	if f.Err != nil {
		return f.Err.Error()
	}
	var parts []string
	for i, metric := range f.Row.Units {
		who, unit := label(metric)
		parts = append(parts, strings.TrimSpace(who+" "+number(f.Of[i].Median, unit)))
	}
	return strings.Join(parts, ", ")
}

// number writes three digits or so of a figure, and its unit.
func number(v float64, unit string) string {
	var s string
	switch a := math.Abs(v); {
	case v == math.Trunc(v) || a >= 1000:
		s = commas(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 100:
		s = strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		s = strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.1:
		s = strconv.FormatFloat(v, 'f', 2, 64)
	default:
		s = strconv.FormatFloat(v, 'g', 2, 64)
	}
	switch {
	case unit == "":
		return s
	case strings.HasPrefix(unit, "/"):
		return s + unit
	}
	return s + " " + unit
}

func commas(digits string) string {
	sign := ""
	if rest, ok := strings.CutPrefix(digits, "-"); ok {
		sign, digits = "-", rest
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
