package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// picture is a file of docs/bench.
type picture struct {
	name   string
	height vg.Length
	draw   func(*chart, *Input, []Figure) error // no panel: there is nothing to show
}

var pictures = []picture{
	{"overview", 16 * vg.Centimeter, drawOverview},
	{"lone", 7 * vg.Centimeter, drawLone},
	{"many", 10 * vg.Centimeter, drawMany},
	{"server", 5.5 * vg.Centimeter, drawServer},
	{"waits", 9 * vg.Centimeter, drawWaits},
	{"turns", 9 * vg.Centimeter, drawTurns},
	{"calls", 6 * vg.Centimeter, drawCalls},
	{"handover", 6.5 * vg.Centimeter, drawHandover},
	{"idle", 7 * vg.Centimeter, drawIdle},
	{"leases", 5 * vg.Centimeter, drawLeases},
	{"growth", 8 * vg.Centimeter, drawGrowth(0, 2)},
	{"growth-keys", 8 * vg.Centimeter, drawGrowth(2, 4)},
	{"hit", 8 * vg.Centimeter, drawHits},
	{"stampede", 12 * vg.Centimeter, drawStampede},
	{"publication", 5.5 * vg.Centimeter, drawPublication},
	{"capacity", 7 * vg.Centimeter, drawCapacity},
}

// drawAll writes the pictures into dir and says which there are. One of an
// earlier run, for which the input has nothing now, is removed.
func drawAll(dir string, in *Input, figures []Figure) (map[string]bool, error) {
	drawn := map[string]bool{}
	for _, p := range pictures {
		c := newChart()
		if err := p.draw(c, in, figures); err != nil {
			return nil, fmt.Errorf("picture %s: %w", p.name, err)
		}
		if len(c.panels) == 0 {
			if err := os.Remove(filepath.Join(dir, p.name+".svg")); err != nil && !os.IsNotExist(err) {
				return nil, err
			}
			continue
		}
		if err := c.save(dir, p.name, p.height); err != nil {
			return nil, err
		}
		drawn[p.name] = true
	}
	return drawn, nil
}

// marksOf is the marks of a benchmark's metrics, "<who>-<unit>", of those who are
// there.
func marksOf(in *Input, b Bench, unit string, who ...string) (all marks) {
	for _, w := range who {
		if s, ok := in.Spread(b, w+"-"+unit); ok {
			all = append(all, mark{name: nameOf(w), who: w, Spread: s})
		}
	}
	return all
}

// drawMarks adds a panel, if there is anything to show.
func (c *chart) drawMarks(title, x string, all marks, log bool) {
	if len(all) > 0 {
		c.panelOf(title, x, all, log)
	}
}

// drawOverview shows each bar and how far from it we are.
func drawOverview(c *chart, _ *Input, figures []Figure) error {
	var all marks
	for _, f := range figures {
		limit := f.Row.Bar
		if f.Err != nil || !limit.Set() || limit.sign == "=" || f.Spread.Min <= 0 {
			continue
		}
		share := func(v float64) float64 { return v / limit.value }
		if limit.sign == "≥" {
			share = func(v float64) float64 { return limit.value / v }
		}
		one, other := share(f.Spread.Min), share(f.Spread.Max)
		all = append(all, mark{
			name: f.Row.Name, who: map[bool]string{true: "mutex", false: "redislock"}[f.Keeps(limit)],
			Spread: Spread{share(f.Spread.Median), min(one, other), max(one, other)}, mute: true,
		})
	}
	if len(all) == 0 {
		return nil
	}
	p := c.panelOf("", "share of the bar (up to 1: reached; at the left edge: that or less)", all, true)
	p.X.Min, p.X.Max = 0.1, 2.2
	for _, m := range all {
		p.X.Max = max(p.X.Max, m.Max*1.2)
	}
	p.X.Tick.Marker = plot.ConstantTicks(halves(p.X.Min, p.X.Max))
	line, err := plotter.NewLine(plotter.XYs{{X: 1, Y: p.Y.Min}, {X: 1, Y: p.Y.Max}})
	if err != nil {
		return err
	}
	line.Color, line.Width = grey, vg.Points(1.5)
	p.Add(line)
	return nil
}

func drawLone(c *chart, in *Input, _ []Figure) error {
	c.drawMarks("ours and the floor", "µs a pair", marksOf(in, of(ours, "LonePair/background"), "µs", "floor", "mutex", "semaphore"), false)
	c.drawMarks("beside peers", "µs a pair", marksOf(in, of(peers, "LonePair"), "µs", "floor", "mutex", "redislock", "redsync", "rueidislock"), false)
	return nil
}

func drawMany(c *chart, in *Input, _ []Figure) error {
	micros := func(b Bench, who string) (float64, bool) {
		s, ok := in.Spread(b, who+"-µs")
		return s.Median, ok
	}
	err := c.drawSizes(in, of(ours, "ManyKeys"), "ours and the floors", "goroutines", "µs a pair", micros, true, "mutex", "semaphore", "floor", "piped-floor")
	if err != nil {
		return err
	}
	return c.drawSizes(in, of(peers, "ManyKeys"), "beside peers", "goroutines", "µs a pair", micros, true, "mutex", "redislock", "redislock-piped", "redsync", "rueidislock", "piped-floor")
}

// drawSizes adds a panel of a benchmark whose sub-benchmarks are sizes, "n=16":
// a curve of value for each who.
func (c *chart) drawSizes(in *Input, b Bench, title, x, y string, value func(Bench, string) (float64, bool), log bool, who ...string) error {
	curves, least, most := map[string]plotter.XYs{}, math.Inf(1), 0.0
	var longest plotter.XYs
	for _, sub := range in.Sizes(b) {
		for _, w := range who {
			if v, ok := value(sub, w); ok && v > 0 {
				curves[w] = append(curves[w], plotter.XY{X: float64(size(sub)), Y: v})
				least, most = min(least, v), max(most, v)
			}
		}
	}
	for _, w := range who {
		if len(curves[w]) > len(longest) {
			longest = curves[w]
		}
	}
	if len(longest) < 2 {
		return nil
	}
	p := c.panel(title, x, y)
	for _, w := range who {
		if len(curves[w]) == 0 {
			continue
		}
		if err := c.curve(p, w, curves[w]); err != nil {
			return err
		}
	}
	logarithmic(&p.X, longest[0].X/1.1, longest[len(longest)-1].X*1.1)
	p.X.Tick.Marker = sizes(longest)
	if log {
		logarithmic(&p.Y, least/1.3, most*1.3)
	} else {
		p.Y.Min, p.Y.Max = 0, max(2, most*1.15)
	}
	return nil
}

func drawServer(c *chart, in *Input, _ []Figure) error {
	c.drawMarks("", "µs of the server's time a pair", marksOf(in, of(ours, "ServerTime"), "server-µs", "noop", "mutex", "semaphore"), false)
	return nil
}
