package main

import "strings"

// grown are the benchmarks whose sub-benchmarks are sizes, "GrowKeys/keys=10".
var grown = []struct{ name, what string }{
	{"GrowHolders", "holders of one key"},
	{"GrowWaiters", "waiters on one key"},
	{"GrowKeys", "keys held"},
	{"GrowHandles", "handles on one client"},
}

// Growth is a table of what grows: each size beside the smallest one, and the memory at the
// greatest.
func (p Page) Growth() string {
	cells := [][]string{{"from the smallest to the greatest", "time of a pair", "server's time a call", "Redis memory of one", "Go memory of one"}}
	for _, g := range grown {
		subs := p.in.Sizes(of(ours, g.name))
		if len(subs) == 0 {
			continue
		}
		last := subs[len(subs)-1]
		row := []string{strings.Join([]string{number(float64(size(subs[0])), ""), "to", number(float64(size(last)), ""), g.what}, " ")}
		for _, f := range []Row{
			{Formula: ratio(last, "pair-µs", "base-pair-µs"), Unit: "×"},
			{Formula: ratio(last, "server-µs", "base-server-µs"), Unit: "×"},
			{Formula: metric(last, "server-B"), Unit: "B"},
			{Formula: metric(last, "Go-B"), Unit: "B"},
		} {
			row = append(row, Figures(p.in, []Row{f})[0].Ratio())
		}
		cells = append(cells, row)
	}
	return markdown(cells)
}
