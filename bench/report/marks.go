package main

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// mark is one figure of a panel of marks: a line of it, with its name at the left
// and the figure at the right.
type mark struct {
	name string
	who  string // for its colour
	Spread
	mute bool // no figure beside it
}

// marks draws figures below each other: as bars from zero, or as dots where the
// axis is logarithmic, for there is no zero. A thin line spans the repetitions.
type marks []mark

// panelOf adds a panel of marks, the first at the top.
func (c *chart) panelOf(title, x string, all marks, log bool) *plot.Plot {
	p := c.panel(title, x, "")
	ticks := make([]plot.Tick, len(all))
	for i, m := range all {
		ticks[i] = plot.Tick{Value: all.at(i), Label: m.name}
	}
	p.Add(all)
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.LineStyle.Width, p.Y.Tick.LineStyle.Width = 0, 0
	p.Y.Padding = vg.Points(14) // for fonts that are wider than ours
	p.Y.Min, p.Y.Max = -0.6, float64(len(all))-0.4
	least, most := math.Inf(1), 0.0
	for _, m := range all {
		if m.Min > 0 {
			least = min(least, m.Min)
		}
		most = max(most, m.Max)
	}
	if most == 0 {
		most = 1
	}
	if log {
		least = min(least, most)
		logarithmic(&p.X, least/1.6, most*math.Pow(most/least, 0.45)*2)
	} else {
		p.X.Min, p.X.Max = 0, most*1.35 // room for the figures
		p.X.Tick.Marker = round125{}
	}
	return p
}

func (all marks) at(i int) float64 { return float64(len(all) - 1 - i) }

// Plot implements plot.Plotter.
func (all marks) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	_, log := p.X.Scale.(plot.LogScale)
	inside := func(v float64) float64 { return min(max(v, p.X.Min), p.X.Max) }
	style := text.Style{Color: p.X.Tick.Label.Color, Font: p.X.Tick.Label.Font, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
	for i, m := range all {
		middle, value := y(all.at(i)), x(inside(m.Median))
		half := min(vg.Points(8), (y(1)-y(0))*0.36)
		if log {
			c.DrawGlyph(draw.GlyphStyle{Color: shade(m.who), Radius: vg.Points(4), Shape: draw.CircleGlyph{}}, vg.Point{X: value, Y: middle})
		} else {
			from := x(0)
			c.FillPolygon(shade(m.who), []vg.Point{{X: from, Y: middle - half}, {X: value, Y: middle - half}, {X: value, Y: middle + half}, {X: from, Y: middle + half}})
		}
		low, high := x(inside(m.Min)), x(inside(m.Max))
		if m.Min != m.Max {
			c.StrokeLine2(draw.LineStyle{Color: p.X.Color, Width: vg.Points(1.1)}, low, middle, high, middle)
		}
		if !m.mute {
			c.FillText(style, vg.Point{X: max(value, high) + vg.Points(7), Y: middle}, number(m.Median, ""))
		}
	}
}

// decades are the ticks of a logarithmic axis.
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
			if m == 1 && (span < 7 || int(e)%2 == 0) || span < 2.2 && (m == 2 || m == 5) {
				label = tick(v)
			}
			if label != "" || span < 4 {
				ticks = append(ticks, plot.Tick{Value: v, Label: label})
			}
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

// round125 are the ticks of an axis from zero: five or so, at round figures.
type round125 struct{}

// Ticks implements plot.Ticker.
func (round125) Ticks(_, high float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10(high/2)))
	for _, m := range []float64{1, 2, 5} {
		if high/(step*m) <= 6 {
			step *= m
			break
		}
	}
	for i := 0; float64(i)*step <= high; i++ {
		ticks = append(ticks, plot.Tick{Value: float64(i) * step, Label: tick(float64(i) * step)})
	}
	return ticks
}

// sizes are ticks at the points themselves: crowds of 1, 4, 16.
func sizes(points plotter.XYs) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, p := range points {
		label := tick(p.X)
		if p.X >= 10_000 {
			label = tick(p.X/1000) + "k"
		}
		ticks = append(ticks, plot.Tick{Value: p.X, Label: label})
	}
	return ticks
}

// halves are ticks at powers of two, of four where those would be many.
func halves(low, high float64) (ticks []plot.Tick) {
	step := 1.0
	if high/low > 128 {
		step = 2
	}
	for e := step * math.Ceil(math.Log2(low)/step); math.Exp2(e) <= high; e += step {
		ticks = append(ticks, plot.Tick{Value: math.Exp2(e), Label: tick(math.Exp2(e))})
	}
	return ticks
}
