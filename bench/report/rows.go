package main

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
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

// Keeps reports whether v keeps it.
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
