package page

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/watch"
	"github.com/leasehold-go/leasehold/internal/listing"
)

const (
	scanEvery   = time.Minute // for keys that came or went
	pollEvery   = time.Second // of what is shown
	mostWatch   = 200         // browsers
	pollMost    = 2000        // keys that are polled at all
	detailsMost = 200         // holders, and waiters, that are shown of a key
)

// hub looks at Redis for all browsers together.
type hub struct {
	changes bool     // limits may be set
	names   sync.Map // id → listing.Resource, of all that is known

	mu       sync.Mutex
	closed   bool
	watchers map[chan []byte]view
	stop     context.CancelFunc // of the loop; nil while nobody watches
	poke     chan struct{}      // somebody came, or looks at something else

	// The loop's alone.
	keys  watch.Keys
	past  map[listing.Resource]*history // of families and of keys
	err   error
	usual func(listing.Resource) time.Duration
}

func newHub(rdb redis.UniversalClient, opt Options) *hub {
	return &hub{
		keys: watch.Keys{List: listing.New(rdb, opt.Prefix)}, changes: opt.Changes, watchers: map[chan []byte]view{}, poke: make(chan struct{}, 1),
		past: map[listing.Resource]*history{},
	}
}

var errFull = errors.New("too many browsers watch")

// join adds a browser. It gets states; one that does not take them in time misses some, never the last.
func (h *hub) join(v view) (<-chan []byte, func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.watchers) >= mostWatch {
		return nil, nil, errFull
	}
	states := make(chan []byte, 1)
	h.watchers[states] = v
	if h.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop = cancel
		go h.run(ctx)
	}
	select {
	case h.poke <- struct{}{}:
	default:
	}
	return states, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, states)
	}, nil
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for states := range h.watchers {
		delete(h.watchers, states)
		close(states)
	}
	if h.stop != nil {
		h.stop()
	}
}

// run looks once a second, as long as somebody watches.
func (h *hub) run(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	quiet := 0
	for {
		views := h.views()
		if len(views) == 0 {
			// A reload leaves for a moment; a scan for each would be a pity.
			if quiet++; quiet > 10 && h.over() {
				return
			}
		} else {
			quiet = 0
			h.look(ctx, views)
			h.tell(ctx, views)
		}
		select {
		case <-tick.C:
		case <-h.poke:
		case <-ctx.Done():
			return
		}
	}
}

func (h *hub) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watchers) > 0 {
		return false
	}
	h.stop()
	h.stop = nil
	return true
}

// views are the different ones of all browsers.
func (h *hub) views() map[view][]chan []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	views := map[view][]chan []byte{}
	for states, v := range h.watchers {
		views[v] = append(views[v], states)
	}
	return views
}

// look brings up to date what is known: all of it once a minute, what is shown each time.
func (h *hub) look(ctx context.Context, views map[view][]chan []byte) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	scan := time.Since(h.keys.Scanned) >= scanEvery
	take, err := h.keys.Read(ctx, scan, h.shown(views))
	if h.err = err; err != nil {
		return
	}
	before := len(h.keys.Known)
	take()
	h.usual = h.keys.Usual()
	if scan || len(h.keys.Known) > before {
		h.note()
	}
	h.remember()
}

// note notes which keys came or went. One that stays is known all the time: see changed.
func (h *hub) note() {
	found := map[listing.Resource]bool{}
	for _, u := range h.keys.Known {
		h.names.Store(id(u.Resource), u.Resource)
		found[u.Resource], found[familyOf(u.Resource)] = true, true
	}
	h.names.Range(func(name, of any) bool {
		if !found[of.(listing.Resource)] {
			h.names.Delete(name)
		}
		return true
	})
	maps.DeleteFunc(h.past, func(of listing.Resource, _ *history) bool { return !found[of] })
}

// shown are the keys that browsers show. All tenants of a family with a total are read when one of them is: idle
// ones cost no command.
func (h *hub) shown(views map[view][]chan []byte) (some []listing.Resource) {
	for v := range views {
		found := h.found(v)
		for _, u := range found[:min(len(found), v.rows)] {
			some = append(some, u.Resource)
		}
		if r, ok := h.names.Load(v.chosen); ok {
			some = append(some, r.(listing.Resource))
		}
	}
	some = some[:min(len(some), pollMost)]
	totals := map[string]bool{}
	for _, r := range some {
		totals[r.Part("")] = r.HasTotal
	}
	for _, u := range h.keys.Known {
		if totals[u.Part("")] {
			some = append(some, u.Resource)
		}
	}
	return some
}

func (h *hub) tell(ctx context.Context, views map[view][]chan []byte) {
	details := map[string]*detail{}
	for v, browsers := range views {
		if _, ok := details[v.chosen]; !ok && v.chosen != "" {
			details[v.chosen] = h.detail(ctx, v.chosen)
		}
		words, err := json.Marshal(h.state(v, details[v.chosen]))
		if err != nil {
			continue
		}
		h.mu.Lock()
		for _, states := range browsers {
			if _, there := h.watchers[states]; !there {
				continue
			}
			select { // the last state counts
			case <-states:
			default:
			}
			states <- words
		}
		h.mu.Unlock()
	}
}

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

// familyOf is what a family has in place of a resource. A lock of a quorum is in that of the mutex of its name.
func familyOf(r listing.Resource) listing.Resource {
	return listing.Resource{Kind: text.Kinds[text.Kind(r.Kind)], Family: r.Family}
}
