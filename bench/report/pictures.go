package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// pictures are the files of docs/bench: curves, which a reader would rather see than read. All
// other figures are in tables.
var pictures = []struct {
	name   string
	height vg.Length
	draw   func(*chart, *Input) error // no panel: there is nothing to show
}{
	{"many", 10 * vg.Centimeter, drawMany},
	{"waits", 9 * vg.Centimeter, drawWaits},
	{"growth", 8 * vg.Centimeter, drawGrowth},
}

// drawAll writes the pictures into dir and says which there are. One of an
// earlier run, for which the input has nothing now, is removed.
func drawAll(dir string, in *Input) (map[string]bool, error) {
	drawn := map[string]bool{}
	for _, p := range pictures {
		c := newChart()
		if err := p.draw(c, in); err != nil {
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

// drawMany shows the time of a pair by the number of goroutines.
func drawMany(c *chart, in *Input) error {
	micros := func(b Bench, who string) (float64, bool) {
		s, ok := in.Spread(b, who+"-µs")
		return s.Median, ok
	}
	err := c.sizes(in, of(ours, "ManyKeys"), "ours and the floors", "goroutines", "µs a pair", micros, true, "mutex", "semaphore", "floor", "piped-floor")
	if err != nil {
		return err
	}
	return c.sizes(in, of(peers, "ManyKeys"), "beside peers", "goroutines", "µs a pair", micros, true, "mutex", "redislock", "redislock-piped", "redsync", "rueidislock", "piped-floor")
}

// drawGrowth shows the cost of each size, to that of the smallest, which ran beside it.
func drawGrowth(c *chart, in *Input) error {
	for _, g := range grown {
		err := c.sizes(in, of(ours, g.name), "", g.what, "× the smallest", func(b Bench, who string) (float64, bool) {
			ratios, _, err := ratio(b, who+"-µs", "base-"+who+"-µs").Evaluate(in)
			if err != nil {
				return 0, false
			}
			return spread(ratios).Median, true
		}, false, "pair", "server")
		if err != nil {
			return err
		}
	}
	return nil
}

// sizes adds a panel of a benchmark whose sub-benchmarks are sizes, "n=16": a curve of value
// for each who.
func (c *chart) sizes(in *Input, b Bench, title, x, y string, value func(Bench, string) (float64, bool), log bool, who ...string) error {
	curves, points, least, most := map[string]plotter.XYs{}, plotter.XYs{}, math.Inf(1), 0.0
	for _, sub := range in.Sizes(b) {
		at := float64(size(sub))
		points = append(points, plotter.XY{X: at})
		for _, w := range who {
			if v, ok := value(sub, w); ok && v > 0 {
				curves[w] = append(curves[w], plotter.XY{X: at, Y: v})
				least, most = min(least, v), max(most, v)
			}
		}
	}
	if len(points) < 2 || len(curves) == 0 {
		return nil
	}
	p := c.panel(title, x, y)
	for _, w := range who {
		if err := c.curve(p, w, curves[w]); err != nil {
			return err
		}
	}
	var ticks plot.ConstantTicks
	for _, at := range points {
		label := tick(at.X)
		if at.X >= 10_000 {
			label = tick(at.X/1000) + "k"
		}
		ticks = append(ticks, plot.Tick{Value: at.X, Label: label})
	}
	logarithmic(&p.X, points[0].X/1.1, points[len(points)-1].X*1.1)
	p.X.Tick.Marker = ticks
	if log {
		logarithmic(&p.Y, least/1.3, most*1.3)
	} else {
		p.Y.Min, p.Y.Max = 0, max(2, most*1.15)
	}
	return nil
}

// drawWaits shows how many turns took at most how long, from the call to the end.
func drawWaits(c *chart, in *Input) error {
	b, who := of(peers, "Contended"), []string{"mutex", "redislock", "redsync", "rueidislock", "local"}
	if len(in.Of(b)) == 0 {
		b = of(ours, "Contended")
	}
	curves, least, most := map[string]plotter.XYs{}, math.Inf(1), 0.0
	for _, w := range who {
		for _, percent := range []int{0, 10, 25, 50, 75, 90, 99, 100} {
			if s, ok := in.Spread(b, w+"-p"+strconv.Itoa(percent)+"-ms"); ok && s.Median > 0 {
				curves[w] = append(curves[w], plotter.XY{X: s.Median, Y: float64(percent)})
				least, most = min(least, s.Median), max(most, s.Median)
			}
		}
	}
	if len(curves) == 0 {
		return nil
	}
	p := c.panel("", "ms from the call to the end of the turn", "% of turns")
	for _, w := range who {
		if err := c.curve(p, w, curves[w]); err != nil {
			return err
		}
	}
	logarithmic(&p.X, least/1.2, most*1.2)
	p.Y.Min, p.Y.Max = 0, 102
	return nil
}

// decades are the ticks of a logarithmic axis: 1, 2 and 5 of each decade where that is little
// enough.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) (ticks []plot.Tick) {
	span := math.Log10(high / low)
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for m := 1; m < 10; m++ {
			v := float64(m) * math.Pow(10, e)
			if v < low*0.999 || v > high*1.001 {
				continue
			}
			label := ""
			if m == 1 || span < 2.2 && (m == 2 || m == 5) {
				label = tick(v)
			}
			ticks = append(ticks, plot.Tick{Value: v, Label: label})
		}
	}
	return ticks
}

func tick(v float64) string {
	if v >= 1000 {
		return number(math.Round(v), "")
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
