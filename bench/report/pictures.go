package main

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

func init() { plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"} }

// competitor is one curve. The colours differ in lightness too, for readers who can't tell
// red from green. What is dashed is no library.
type competitor struct {
	metric, name string
	color        color.NRGBA
	dashed       bool
}

var competitors = []competitor{
	{"mutex", "leasehold", color.NRGBA{0x1a, 0x66, 0xc2, 0xff}, false},
	{"semaphore", "leasehold, a permit", color.NRGBA{0x56, 0xb4, 0xe9, 0xff}, false},
	{"redislock", "redislock", color.NRGBA{0xd5, 0x5e, 0x00, 0xff}, false},
	{"redislock-piped", "redislock, AutoPipeline", color.NRGBA{0xe6, 0x9f, 0x00, 0xff}, false},
	{"redsync", "redsync", color.NRGBA{0x7a, 0x2f, 0x8f, 0xff}, false},
	{"rueidislock", "rueidislock", color.NRGBA{0x00, 0x7f, 0x5f, 0xff}, false},
	{"floor", "bare round trips", color.NRGBA{0x80, 0x80, 0x80, 0xff}, true},
	{"piped-floor", "bare, pipelined", color.NRGBA{0x30, 0x30, 0x30, 0xff}, true},
	{"local", "local sync.Mutex", color.NRGBA{0x80, 0x80, 0x80, 0xff}, true},
}

// drawAll writes the two pictures, which a reader would rather see than read: all other figures are in tables.
func drawAll(dir string, in *Input) error {
	ours, beside := newPanel("ours and the floors", "goroutines", "µs per pair"), newPanel("beside peers", "goroutines", "µs per pair")
	waits := newPanel("", "ms from the call to the end of the turn", "% of turns")
	waits.Legend.Left = true
	for _, c := range competitors {
		ours.add(c, bySize(in, Bench{"bench", "ManyKeys"}, c.metric+"-µs"))
		beside.add(c, bySize(in, Bench{"peers", "ManyKeys"}, c.metric+"-µs"))
		var percentiles plotter.XYs
		for _, percent := range []int{0, 10, 25, 50, 75, 90, 99, 100} {
			if column, err := in.Column(Bench{"peers", "Contended"}, c.metric+"-p"+strconv.Itoa(percent)+"-ms"); err == nil {
				percentiles = append(percentiles, plotter.XY{X: median(column), Y: float64(percent)})
			}
		}
		waits.add(c, percentiles)
	}
	ours.Y.Scale, ours.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	beside.Y.Scale, beside.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	if err := save(filepath.Join(dir, "many.svg"), ours, beside); err != nil {
		return err
	}
	return save(filepath.Join(dir, "waits.svg"), waits)
}

// bySize is the median of a metric in each sub-benchmark of b that is called after a size,
// "goroutines=16", the smallest first.
func bySize(in *Input, b Bench, metric string) (points plotter.XYs) {
	for sub := range in.Lines {
		_, size, _ := strings.Cut(sub.Name, "=")
		x, err := strconv.ParseFloat(size, 64)
		if err != nil || sub.Module != b.Module || !strings.HasPrefix(sub.Name, b.Name+"/") {
			continue
		}
		if column, err := in.Column(sub, metric); err == nil {
			points = append(points, plotter.XY{X: x, Y: median(column)})
		}
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	return points
}

type panel struct {
	*plot.Plot
	curves int
}

func newPanel(title, x, y string) *panel {
	p := &panel{Plot: plot.New()}
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Padding, p.Legend.TextStyle.Font.Size = true, vg.Points(4), vg.Points(10)
	p.Add(plotter.NewGrid())
	return p
}

// add draws a curve, if c was measured.
func (p *panel) add(c competitor, points plotter.XYs) {
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil || len(points) == 0 {
		return
	}
	line.Color, line.Width, dots.Color, dots.Shape = c.color, vg.Points(1.6), c.color, draw.CircleGlyph{}
	if c.dashed {
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	p.Plot.Add(line, dots)
	p.Legend.Add(c.name, line, dots)
	p.curves++
}

// save writes panels side by side as an SVG file.
func save(name string, panels ...*panel) error {
	var row []*plot.Plot
	for _, p := range panels {
		if p.curves == 0 {
			return fmt.Errorf("nothing was measured that %s shows", filepath.Base(name))
		}
		row = append(row, p.Plot)
	}
	canvas := vgsvg.New(25*vg.Centimeter, 10*vg.Centimeter)
	all := draw.New(canvas)
	all.SetColor(color.White) // of its own, for pages that are dark
	all.Fill(all.Rectangle.Path())
	tiles := draw.Tiles{Rows: 1, Cols: len(row), PadX: vg.Centimeter, PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(18)}
	for i, tile := range plot.Align([][]*plot.Plot{row}, tiles, all)[0] {
		row[i].Draw(tile)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// Where the font is missing, one of the same widths.
	text := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	return os.WriteFile(name, text, 0o644)
}
