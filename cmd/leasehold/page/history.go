package page

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/listing"
)

// history is the use and the queue of a family or a key over the last minutes.
type history struct {
	family bool
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
	families := map[string]point{}
	for name, u := range h.known {
		if u.InUse+u.Waiting > 0 || h.past[name] != nil {
			h.history(name, false).add(now, point{u.InUse, u.Waiting})
		}
		if u.HasTotal && u.Key == "" || u.Whole {
			continue // it is in its tenants' figures, or beside those of the keys
		}
		key := familyID(u.Resource)
		p := families[key]
		families[key] = point{p.use + u.InUse, p.waiting + u.Waiting}
	}
	for key, p := range families {
		h.history(key, true).add(now, p)
	}
}

func (h *hub) history(name string, family bool) *history {
	x := h.past[name]
	if x == nil {
		x = &history{family: family}
		h.past[name] = x
	}
	return x
}

func familyID(r listing.Resource) string { return string(r.Kind) + ":" + r.Family }
