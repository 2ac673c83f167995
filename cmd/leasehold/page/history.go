package page

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/listing"
)

// history is the use and the queue of a family or a key over the last minutes.
type history struct {
	points []point // of span each, the oldest first
	begun  time.Time
}

// point is the most of a span.
type point struct{ use, waiting int }

const (
	span      = 2 * time.Second // chart.js and app.js know both
	mostSpans = 120
)

func (x *history) add(now time.Time, p point) {
	if n := len(x.points); n == 0 || now.Sub(x.begun) >= span {
		// Spans in which nobody watched are left out: the chart has a seam there.
		x.points = append(x.points, p)
		x.begun = now
		if len(x.points) > mostSpans {
			x.points = x.points[len(x.points)-mostSpans:]
		}
		return
	}
	last := &x.points[len(x.points)-1]
	last.use, last.waiting = max(last.use, p.use), max(last.waiting, p.waiting)
}

// series are use and waiting, for a chart.
func (x *history) series() [2][]int {
	var s [2][]int
	if x == nil {
		return s
	}
	for _, p := range x.points {
		s[0], s[1] = append(s[0], p.use), append(s[1], p.waiting)
	}
	return s
}

func (h *hub) remember() {
	now := time.Now()
	families := map[listing.Resource]point{}
	for _, u := range h.keys.Known {
		if u.InUse+u.Waiting > 0 || h.past[u.Resource] != nil {
			h.history(u.Resource).add(now, point{u.InUse, u.Waiting})
		}
		if u.HasTotal && u.Key == "" || u.Whole {
			continue // it is in its tenants' figures, or beside those of the keys
		}
		p := families[familyOf(u.Resource)]
		families[familyOf(u.Resource)] = point{p.use + u.InUse, p.waiting + u.Waiting}
	}
	for family, p := range families {
		h.history(family).add(now, p)
	}
}

func (h *hub) history(of listing.Resource) *history {
	if h.past[of] == nil {
		h.past[of] = &history{}
	}
	return h.past[of]
}

// familyOf is what a family has in place of a resource.
func familyOf(r listing.Resource) listing.Resource {
	return listing.Resource{Kind: r.Kind, Family: r.Family}
}
