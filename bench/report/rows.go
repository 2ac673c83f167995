package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

//go:embed rows.txt
var rowsText string

// Rows is every row, in the order of rows.txt, which says what its columns mean.
var Rows = must(parseRows(rowsText))

func must(rows []Row, err error) []Row {
	if err != nil {
		panic(err)
	}
	return rows
}

// Row is one thing that is asked.
type Row struct {
	Name, Question, What string
	Formula
	Unit       string // of the figure; a ratio and a number have none
	Bar, Guard Limit
	Counted    bool // each repetition has to keep the limits, not the median
}

func parseRows(text string) (rows []Row, err error) {
	question := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if q, ok := strings.CutPrefix(line, "== "); ok {
			question = q
		}
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "==") {
			continue
		}
		c := strings.Split(line, "|")
		if len(c) != 7 {
			return nil, fmt.Errorf("rows.txt: %d columns: %s", len(c), line)
		}
		for i := range c {
			c[i] = strings.TrimSpace(c[i])
		}
		r := Row{Name: c[0], Question: question, What: c[1], Unit: c[4]}
		guard, counted := strings.CutPrefix(c[6], "each ")
		r.Counted = counted
		if r.Formula, err = parseFormula(c[2], c[3]); err == nil {
			if r.Bar, err = parseLimit(c[5]); err == nil {
				r.Guard, err = parseLimit(guard)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("rows.txt: %s: %w", r.Name, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// Limit is what a figure has to keep. The zero Limit is none.
type Limit struct {
	sign  string // "≤", "≥" or "="
	value float64
}

func parseLimit(text string) (Limit, error) {
	if text == "" {
		return Limit{}, nil
	}
	for _, sign := range []string{"≤", "≥", "="} {
		if digits, ok := strings.CutPrefix(text, sign); ok {
			v, err := strconv.ParseFloat(digits, 64)
			return Limit{sign, v}, err
		}
	}
	return Limit{}, fmt.Errorf("%q is no limit", text)
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

// Check says which rows failed, a line each: those that don't keep their guard limit, and those that can't be
// computed, for what isn't measured proves nothing.
func Check(figures []Figure) (failed []string) {
	for _, f := range figures {
		switch {
		case f.Err != nil:
			failed = append(failed, fmt.Sprintf("%s: %v", f.Row.Name, f.Err))
		case !f.Keeps(f.Row.Guard):
			failed = append(failed, fmt.Sprintf("%s: %s: %v, demanded is %s: %s",
				f.Row.Name, f.Row.What, f, f.Row.Guard.With(f.Row.Unit), f.Behind()))
		}
	}
	return failed
}

// Select takes the rows that a comma-separated list names by module, question or
// name; what begins with "-" takes some out again. Nothing selects all.
func Select(rows []Row, list string) ([]Row, error) {
	chosen := slices.Clone(rows)
	if list == "" {
		return chosen, nil
	}
	if !strings.HasPrefix(list, "-") {
		chosen = nil
	}
	for item := range strings.SplitSeq(list, ",") {
		name, out := strings.CutPrefix(item, "-")
		named := func(r Row) bool { return r.Bench.Module == name || r.Question == name || r.Name == name }
		if !slices.ContainsFunc(rows, named) {
			return nil, fmt.Errorf("no row, question or module is called %q", name)
		}
		if out {
			chosen = slices.DeleteFunc(chosen, named)
			continue
		}
		for _, r := range rows {
			if named(r) && !slices.ContainsFunc(chosen, func(c Row) bool { return c.Name == r.Name }) {
				chosen = append(chosen, r)
			}
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%q selects no row", list)
	}
	return chosen, nil
}
