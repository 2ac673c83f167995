package main

import (
	"fmt"
	"strings"
	"time"
)

// The layout of the picture, in pixels: panels below each other.
const (
	panelWidth, panelHeight = 640, 110
	leftEdge, topEdge       = 50, 40
	panelGap                = 62
)

// picture draws the same as the charts, as SVG.
func picture(runs []*record) string {
	var w strings.Builder
	height := topEdge + len(runs)*(panelHeight+panelGap)
	fmt.Fprintf(&w, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">
<style>
  .back { fill: #fff } text { fill: #222 } .faint { fill: #777 }
  .axis { stroke: #bbb } .left { fill: #2a78d6 } .dead { fill: #c9c9c9 } .away { fill: #f2d4c8 }
  @media (prefers-color-scheme: dark) {
    .back { fill: #181818 } text { fill: #ddd } .faint { fill: #999 }
    .axis { stroke: #555 } .left { fill: #5a9be6 } .dead { fill: #555 } .away { fill: #5b3226 }
  }
</style>
<rect class="back" width="100%%" height="100%%"/>
`, leftEdge+panelWidth+30, height)
	fmt.Fprintf(&w, "<text x=\"%d\" y=\"20\" font-size=\"14\">What is left of a lease of %v, in seconds, over time</text>\n", leftEdge, leaseTTL)
	for i, r := range runs {
		r.panel(&w, topEdge+30+i*(panelHeight+panelGap))
	}
	w.WriteString("</svg>\n")
	return w.String()
}

func (r *record) panel(w *strings.Builder, top int) {
	x := func(at time.Duration) float64 { return leftEdge + panelWidth*float64(at)/float64(span) }
	y := func(left time.Duration) float64 {
		return float64(top) + panelHeight*(1-float64(left)/float64(highest))
	}
	text := func(x, y float64, class, s string) {
		fmt.Fprintf(w, "<text class=%q x=\"%.1f\" y=\"%.1f\">%s</text>\n", class, x, y, s)
	}
	text(leftEdge, float64(top-10), "", r.name+": "+r.title())
	if r.awayAt > 0 {
		until := min(r.awayAt+awayFor, r.end())
		fmt.Fprintf(w, "<rect class=\"away\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>\n",
			x(r.awayAt), top, x(until)-x(r.awayAt), panelHeight)
		text(x(r.awayAt)+4, float64(top+14), "faint", "Redis away")
	}
	living, dead := []string{}, []string{}
	for at := r.first(); at <= r.end(); at += 10 * time.Millisecond {
		left, alive := r.left(at)
		point := fmt.Sprintf("%.1f,%.1f", x(at), y(min(left, highest)))
		if alive {
			living = append(living, point)
		} else {
			dead = append(dead, point)
		}
	}
	area(w, "left", living, y(0))
	area(w, "dead", dead, y(0))
	for row := range rows + 1 {
		left := time.Duration(row) * perRow
		at := y(left)
		fmt.Fprintf(w, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke-width=\"0.5\"/>\n",
			leftEdge, leftEdge+panelWidth, at, at)
		text(leftEdge-28, at+4, "faint", fmt.Sprintf("%.0f s", left.Seconds()))
	}
	for i, start := range r.steps {
		at := x(start.Sub(r.start))
		fmt.Fprintf(w, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n", at, at, top, top+panelHeight+6)
		text(at+2, float64(top+panelHeight+15), "faint", fmt.Sprintf("step %d", i+1))
	}
	switch {
	case r.killed:
		text(x(r.killAt), float64(top+panelHeight+15), "", "killed")
		text(x(r.heirAt)-20, float64(top+panelHeight+15), "", "free again")
	case r.lostAt > 0:
		text(x(r.lostAt), float64(top+panelHeight+15), "", "lost: the work stops")
	}
}

// area fills what is below a curve.
func area(w *strings.Builder, class string, points []string, bottom float64) {
	if len(points) == 0 {
		return
	}
	edge := func(point string) string {
		x, _, _ := strings.Cut(point, ",")
		return fmt.Sprintf("%s,%.1f", x, bottom)
	}
	fmt.Fprintf(w, "<polygon class=%q points=\"%s %s %s\"/>\n", class,
		edge(points[0]), strings.Join(points, " "), edge(points[len(points)-1]))
}
