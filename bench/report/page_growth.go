package main

import "strings"

// Growth is the tables of what grows.
func (p Page) Growth() string {
	var parts []string
	for _, g := range grown {
		if t := growthTable(p.in, of(ours, g.name), g.what); t != "" {
			parts = append(parts, t)
		}
	}
	return strings.Join(parts, "\n")
}

// column is one of a growth table: a metric, or its ratio to the smallest's,
// which ran beside it.
type column struct {
	heading string
	Formula
}

func growthColumns(b Bench) []column {
	return []column{
		{"pair, µs", metric(b, "pair-µs")},
		{"to the smallest", ratio(b, "pair-µs", "base-pair-µs")},
		{"server's time a call, µs", metric(b, "server-µs")},
		{"to the smallest", ratio(b, "server-µs", "base-server-µs")},
		{"server's memory of one, B", metric(b, "server-B")},
		{"Go memory of one, B", metric(b, "Go-B")},
	}
}

// growthTable is a table of a benchmark's sizes. A column that no size has is
// left out; a size that has it not gets a dash.
func growthTable(in *Input, b Bench, what string) string {
	subs := in.Sizes(b)
	if len(subs) == 0 {
		return ""
	}
	heading := []string{what}
	rows := make([][]string, len(subs))
	for i, sub := range subs {
		rows[i] = []string{number(float64(size(sub)), "")}
	}
	for k, c := range growthColumns(b) {
		column, any := make([]string, len(subs)), false
		for i, sub := range subs {
			column[i] = "–"
			if values, _, err := growthColumns(sub)[k].Evaluate(in); err == nil {
				column[i], any = Figure{Spread: spread(values)}.Ratio(), true
			}
		}
		if any {
			heading = append(heading, c.heading)
			for i := range rows {
				rows[i] = append(rows[i], column[i])
			}
		}
	}
	return markdown(append([][]string{heading}, rows...))
}
