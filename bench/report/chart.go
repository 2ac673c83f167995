package main

import (
	"bytes"
	"image/color"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

func init() { plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"} }

// shades has a colour for each competitor, the same in all pictures. Ours are
// blue, floors grey. The others' differ in lightness too, for those who can't
// tell red from green.
var shades = map[string]color.NRGBA{
	"mutex": blue, "leasehold": blue, "hit": blue, "pair": blue,
	"semaphore":       {R: 0x56, G: 0xb4, B: 0xe9, A: 0xff},
	"redislock":       {R: 0xd5, G: 0x5e, B: 0x00, A: 0xff},
	"redislock-piped": {R: 0xe6, G: 0x9f, B: 0x00, A: 0xff},
	"gorediscache":    {R: 0xd5, G: 0x5e, B: 0x00, A: 0xff},
	"redsync":         {R: 0x7a, G: 0x2f, B: 0x8f, A: 0xff},
	"rueidislock":     {R: 0x00, G: 0x7f, B: 0x5f, A: 0xff},
	"rockscache":      {R: 0x00, G: 0x7f, B: 0x5f, A: 0xff},
	"rockscache-10ms": {R: 0x6d, G: 0xb5, B: 0x9c, A: 0xff},
}

var (
	blue = color.NRGBA{R: 0x1a, G: 0x66, B: 0xc2, A: 0xff}
	grey = color.NRGBA{R: 0x80, G: 0x80, B: 0x80, A: 0xff}
	pale = color.NRGBA{R: 0xe4, G: 0xe4, B: 0xe4, A: 0xff}
)

// names that the metrics have no room for.
var names = map[string]string{
	"floor": "bare round trips", "piped-floor": "bare, pipelined", "local": "local sync.Mutex", "noop": "empty script",
	"pair": "time of a pair", "server": "server's time a call", "hit": "leasehold",
	"redislock-piped": "redislock, AutoPipeline", "gorediscache": "go-redis/cache", "publish": "bare publish", "ping": "PING",
	"rockscache-10ms": "rockscache, 10 ms",
}

func nameOf(who string) string {
	if n, ok := names[who]; ok {
		return n
	}
	return who
}

// isFloor tells what is dashed.
func isFloor(who string) bool {
	return strings.Contains(who, "floor") || who == "local" || who == "noop"
}

func shade(who string) color.Color {
	if c, ok := shades[who]; ok {
		return c
	}
	if who == "piped-floor" {
		return color.NRGBA{R: 0x30, G: 0x30, B: 0x30, A: 0xff}
	}
	return grey
}

// chart is a picture: panels side by side, and one legend beside them, where it
// can't cover a line.
type chart struct {
	panels []*plot.Plot
	legend plot.Legend
	known  map[string]bool // who is in the legend
}

func newChart() *chart { return &chart{legend: plot.NewLegend(), known: map[string]bool{}} }

// panel adds one.
func (c *chart) panel(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(6)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = pale, pale
	p.Add(grid)
	c.panels = append(c.panels, p)
	return p
}

// curve draws who's points in p, if there are any, and puts it into the legend.
func (c *chart) curve(p *plot.Plot, who string, points plotter.XYs) error {
	if len(points) == 0 {
		return nil
	}
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = shade(who), vg.Points(1.6)
	dots.Color, dots.Radius, dots.Shape = shade(who), vg.Points(2.2), draw.CircleGlyph{}
	if isFloor(who) {
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	p.Add(line, dots)
	if !c.known[who] {
		c.known[who] = true
		c.legend.Add(nameOf(who), line, dots)
	}
	return nil
}

// save writes it as an SVG file.
func (c *chart) save(dir, name string, height vg.Length) error {
	const width, beside = 25 * vg.Centimeter, 5.8 * vg.Centimeter
	canvas := vgsvg.New(width, height)
	all := draw.New(canvas)
	all.SetColor(color.White) // of its own, for pages that are dark
	all.Fill(all.Rectangle.Path())
	left := all
	if len(c.known) > 0 {
		left = draw.Crop(all, 0, -beside, 0, 0)
		c.legend.Top, c.legend.Left = true, true
		c.legend.Padding, c.legend.TextStyle.Font.Size = vg.Points(3), vg.Points(10)
		c.legend.ThumbnailWidth = vg.Points(24)
		c.legend.Draw(draw.Crop(all, width-beside+vg.Points(8), 0, 0, -vg.Points(24)))
	}
	tiles := draw.Tiles{
		Rows: 1, Cols: len(c.panels), PadX: vg.Centimeter,
		PadTop: 2 * vg.Millimeter, PadBottom: 2 * vg.Millimeter, PadLeft: 2 * vg.Millimeter, PadRight: 6 * vg.Millimeter,
	}
	for i, tile := range plot.Align([][]*plot.Plot{c.panels}, tiles, left)[0] {
		c.panels[i].Draw(tile)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// Where the font is missing, one of the same widths.
	text := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	return os.WriteFile(filepath.Join(dir, name+".svg"), text, 0o644)
}

// logarithmic makes an axis logarithmic.
func logarithmic(a *plot.Axis, low, high float64) {
	a.Scale, a.Min, a.Max = plot.LogScale{}, low, high
	a.Tick.Marker = decades{}
}
