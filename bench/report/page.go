package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The page is a template with prose written by hand. Its first section can be measured
// and written by itself: the templates "lead" and "readme" in it.
//
//go:embed page.md.tmpl
var pageText string

var templates = template.Must(template.New("page").Parse(pageText))

// Page is what the template sees.
type Page struct {
	in   *Input
	rows []*Row
}

func (p Page) render(name string) (string, error) {
	var out bytes.Buffer
	err := templates.ExecuteTemplate(&out, name, p)
	return out.String(), err
}

// Write writes benchmarks.md into dir and the pictures into dir/bench.
func (p Page) Write(dir string) error {
	if err := drawAll(filepath.Join(dir, "bench"), p.in); err != nil {
		return err
	}
	text, err := p.render("page")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "benchmarks.md"), []byte(text), 0o644)
}

// WriteLead puts the first section into benchmarks.md of dir, in the place of the one that
// is there, and its main figures into the README beside dir. The rest of both stays as it is.
func (p Page) WriteLead(dir string) error {
	if err := p.splice(filepath.Join(dir, "benchmarks.md"), "lead"); err != nil {
		return err
	}
	return p.splice(filepath.Join(dir, "..", "README.md"), "readme")
}

// splice renders a template between the two comments of a file that are called after it.
func (p Page) splice(name, section string) error {
	text, err := p.render(section)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+section+": begin -->\n", "<!-- "+section+": end -->\n"
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s has no section from %q to %q", name, begin, end)
	}
	return os.WriteFile(name, []byte(before+begin+text+end+after), 0o644)
}

// Machine is what it ran on, as the output says it.
func (p Page) Machine() string {
	var parts []string
	for _, key := range []string{"cpu", "processors", "goos", "goarch", "server", "go"} {
		v := p.in.Config(key)
		switch {
		case v == "":
			v = key + " not told"
		case key == "processors":
			v += " processors"
		}
		parts = append(parts, v)
	}
	return strings.Join(parts, ", ")
}

// Repetitions is how often the rows of some questions were measured at least.
func (p Page) Repetitions(questions ...string) (least int) {
	for _, r := range p.rows {
		if n := len(r.Values); slices.Contains(questions, r.Question) && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// Answers is a table of those rows of some questions that have a bar, in bold where the figure does not reach it.
func (p Page) Answers(questions ...string) string {
	s := "| question | figure | bar |\n|---|---|---|\n"
	for _, r := range p.rows {
		if !slices.Contains(questions, r.Question) || r.Bar == (Limit{}) {
			continue
		}
		bar := r.Bar.With(r.Unit)
		if r.Verdict() != "reached" {
			bar = "**" + bar + "**"
		}
		s += fmt.Sprintf("| %s | %v | %s |\n", r.What, r, bar)
	}
	return strings.TrimSuffix(s, "\n")
}

func (p Page) Row(name string) (*Row, error) {
	for _, r := range p.rows {
		if r.Name == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("there is no row %s", name)
}

// Median is the median of a row's figure.
func (p Page) Median(name string) (string, error) {
	r, err := p.Row(name)
	if err != nil {
		return "", err
	}
	return r.Median(), nil
}

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
