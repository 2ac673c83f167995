package main

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

//go:embed rows.txt
var rowsText string

// Row is one thing that is asked, and, once it is measured, its figure.
type Row struct {
	Name, Question, What string
	Bench                Bench
	formula              []string // a metric, or two with what stands between: "/", "-" or "~"
	Unit                 string   // of the figure; a ratio and a number have none
	Bar, Guard           Limit
	Counted              bool // each repetition has to keep the limits, not the median

	Values []float64 // one for each repetition
	Behind string    // what they were made of
	Err    error     // they could not be computed
}

// parseRows reads rows.txt, which says what its columns mean.
func parseRows(text string) (rows []*Row, err error) {
	question := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if q, ok := strings.CutPrefix(line, "== "); ok {
			question = q
		} else if line != "" && line[0] != '#' {
			r, err := parseRow(question, line)
			if err != nil {
				return nil, fmt.Errorf("rows.txt: %s: %w", line, err)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func parseRow(question, line string) (*Row, error) {
	c := strings.Split(line, "|")
	if len(c) != 7 {
		return nil, fmt.Errorf("%d columns", len(c))
	}
	for i := range c {
		c[i] = strings.TrimSpace(c[i])
	}
	r := &Row{Name: c[0], Question: question, What: c[1], formula: strings.Fields(c[3]), Unit: c[4]}
	var named bool
	if r.Bench.Module, r.Bench.Name, named = strings.Cut(c[2], " "); !named {
		return nil, fmt.Errorf("%q names no module and benchmark", c[2])
	}
	if n := len(r.formula); n != 1 && (n != 3 || !strings.Contains("/-~", r.formula[1])) {
		return nil, fmt.Errorf("%q is no formula", c[3])
	}
	var err error
	if r.Bar, err = parseLimit(c[5]); err != nil {
		return nil, err
	}
	guard, counted := strings.CutPrefix(c[6], "each ")
	r.Counted = counted
	r.Guard, err = parseLimit(guard)
	return r, err
}

// Limit is what a figure has to keep. The zero Limit is none.
type Limit struct {
	sign  string // "≤", "≥" or "="
	value float64
}

func parseLimit(text string) (l Limit, err error) {
	if text == "" {
		return l, nil
	}
	for _, sign := range []string{"≤", "≥", "="} {
		if digits, ok := strings.CutPrefix(text, sign); ok {
			l.sign = sign
			l.value, err = strconv.ParseFloat(digits, 64)
			return l, err
		}
	}
	return l, fmt.Errorf("%q is no limit", text)
}

func (l Limit) Keeps(v float64) bool {
	switch l.sign {
	case "≤":
		return v <= l.value
	case "≥":
		return v >= l.value
	case "=":
		return v == l.value
	}
	return true
}

// With writes it down in the unit.
func (l Limit) With(unit string) string {
	if l.sign == "" {
		return "–"
	}
	return l.sign + " " + number(l.value, unit)
}

// Measure computes the figures of rows.
func Measure(in *Input, rows []*Row) {
	for _, r := range rows {
		r.Err = r.measure(in)
	}
}

func (r *Row) measure(in *Input) error {
	var columns [][]float64
	var behind []string
	for i := 0; i < len(r.formula); i += 2 {
		column, err := in.Column(r.Bench, r.formula[i])
		if err != nil {
			return err
		}
		columns = append(columns, column)
		behind = append(behind, r.formula[i]+" "+number(median(column), ""))
	}
	r.Behind = strings.Join(behind, ", ")
	for n, v := range columns[0] {
		if len(columns) == 2 {
			v = combine(r.formula[1], v, columns[1][n])
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%v, repetition %d: no figure can be made of %s", r.Bench, n+1, r.Behind)
		}
		r.Values = append(r.Values, v)
	}
	return nil
}

func combine(sign string, a, b float64) float64 {
	switch sign {
	case "/":
		return a / b
	case "-":
		return a - b
	}
	return max(a/b, b/a)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Keeps reports whether the figure keeps a limit: the median of what a busy
// machine shifts, each repetition of what is counted.
func (r *Row) Keeps(l Limit) bool {
	if r.Err != nil {
		return false
	}
	if !r.Counted {
		return l.Keeps(median(r.Values))
	}
	return !slices.ContainsFunc(r.Values, func(v float64) bool { return !l.Keeps(v) })
}

// Verdict is whether the bar is reached, in a word.
func (r *Row) Verdict() string {
	switch {
	case r.Bar == Limit{}:
		return ""
	case r.Err != nil:
		return "not measured"
	case r.Keeps(r.Bar):
		return "reached"
	}
	return "not reached"
}

// Failed says why a row fails the check: it does not keep its guard limit, or cannot be computed, for what is not
// measured proves nothing. It is "" for the others.
func (r *Row) Failed() string {
	switch {
	case r.Err != nil:
		return fmt.Sprintf("%s: %v", r.Name, r.Err)
	case !r.Keeps(r.Guard):
		return fmt.Sprintf("%s: %s: %v, demanded is %s: %s", r.Name, r.What, r, r.Guard.With(r.Unit), r.Behind)
	}
	return ""
}

// String is the figure: the median, and the spread where there is one.
func (r *Row) String() string {
	if r.Err != nil {
		return "–"
	}
	text := r.Median()
	low, high := slices.Min(r.Values), slices.Max(r.Values)
	switch {
	case low == high:
		return text
	case low < 0: // a dash would look like another minus
		return fmt.Sprintf("%s (%s to %s)", text, number(low, ""), number(high, ""))
	}
	return fmt.Sprintf("%s (%s–%s)", text, number(low, ""), number(high, ""))
}

// Median is the figure without its spread.
func (r *Row) Median() string {
	if r.Err != nil {
		return "–"
	}
	return number(median(r.Values), r.Unit)
}

// About is the median with two digits: more would pretend.
func (r *Row) About() string {
	if r.Err != nil {
		return "–"
	}
	v, scale := median(r.Values), 1.0
	for v/scale >= 100 {
		scale *= 10
	}
	return number(math.Round(v/scale)*scale, r.Unit)
}

var english = message.NewPrinter(language.English)

// number writes three digits or so of a figure, and its unit.
func number(v float64, unit string) string {
	var s string
	switch a := math.Abs(v); {
	case v == math.Trunc(v) || a >= 100:
		s = english.Sprintf("%.0f", v)
	case a >= 10:
		s = english.Sprintf("%.1f", v)
	case a >= 0.1:
		s = english.Sprintf("%.2f", v)
	default:
		s = strconv.FormatFloat(v, 'g', 2, 64)
	}
	if unit != "" {
		s += " " + unit
	}
	return s
}
