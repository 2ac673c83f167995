package soak

import (
	"image/color"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// shades are those of a panel's curves.
var shades = []color.NRGBA{
	{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff},
	{R: 0xd6, G: 0x5f, B: 0x0e, A: 0xff},
	{R: 0x8a, G: 0x8a, B: 0x8a, A: 0xff},
	{R: 0xc4, G: 0xc4, B: 0xc4, A: 0xff},
}

// drawing makes soak.svg of the first four panels.
func drawing(dir string, panels []panel, span history.Span) error {
	const width, height = 22 * vg.Centimeter, 15 * vg.Centimeter
	plots := [][]*plot.Plot{{nil, nil}, {nil, nil}}
	for i, p := range panels[:4] {
		one, err := p.plot(span)
		if err != nil {
			return err
		}
		plots[i/2][i%2] = one
	}
	canvas := vgsvg.New(width, height)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	tiles := draw.Tiles{Rows: 2, Cols: 2, PadX: vg.Centimeter / 2, PadY: vg.Centimeter / 2, PadTop: vg.Millimeter, PadRight: 3 * vg.Millimeter}
	for i, row := range plot.Align(plots, tiles, all) {
		for k, tile := range row {
			plots[i][k].Draw(tile)
		}
	}
	out, err := os.Create(filepath.Join(dir, "soak.svg"))
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(out); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

func (p panel) plot(span history.Span) (*plot.Plot, error) {
	one := plot.New()
	one.Title.Text = p.name
	one.X.Label.Text = "minutes"
	one.Legend.Top, one.Legend.Left = true, true // where no font makes it overlap
	one.Add(plotter.NewGrid())
	unit := max(p.unit, 1)
	var lines []plot.Plotter
	for i, c := range p.curves {
		var points plotter.XYs
		for _, at := range c.points {
			points = append(points, plotter.XY{X: float64(at.at-span.From) / 6e10, Y: at.value / unit})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = shades[i], vg.Points(1)
		one.Legend.Add(c.name, line)
		lines = append(lines, line)
	}
	slices.Reverse(lines) // the first one on top of the others
	one.Add(lines...)
	one.Y.Min, one.Y.Max = 0, one.Y.Max*1.45 // the legend lies above the curves
	return one, nil
}
