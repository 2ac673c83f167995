package page

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/listing"
)

const (
	scanEvery   = time.Minute // for keys that came or went
	pollEvery   = time.Second // of what is shown
	mostWatch   = 200         // browsers
	pollAll     = 500         // up to so many keys are polled whatever is shown
	pollMost    = 2000        // keys that are polled at all
	detailsMost = 200         // holders, and waiters, that are shown of a key
)

// hub looks at Redis for all browsers together.
type hub struct {
	list    *listing.Lister
	changes bool     // limits may be set
	names   sync.Map // id → listing.Resource, of all that is known

	mu       sync.Mutex
	closed   bool
	watchers map[chan []byte]view
	stop     context.CancelFunc // of the loop; nil while nobody watches
	poke     chan struct{}      // somebody came, or looks at something else

	// The loop's alone.
	known   map[string]listing.Use // by id: what is known of each key
	order   []string
	past    map[string]*history // of families, by kind and name, and of keys, by id
	scanned time.Time
	took    time.Duration
	err     error
	usual   func(listing.Resource) time.Duration // for how long a family's leases are held
}

func newHub(rdb redis.UniversalClient, opt Options) *hub {
	return &hub{
		list: listing.New(rdb, opt.Prefix), changes: opt.Changes, watchers: map[chan []byte]view{}, poke: make(chan struct{}, 1),
		known: map[string]listing.Use{}, past: map[string]*history{},
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
	if time.Since(h.scanned) >= scanEvery {
		h.err = h.scan(ctx)
	} else {
		h.err = h.poll(ctx, views)
	}
	h.usual = listing.Usual(maps.Values(h.known))
	if h.err == nil {
		h.remember()
	}
}

func (h *hub) scan(ctx context.Context) error {
	began := time.Now()
	all, err := h.list.Resources(ctx)
	if err != nil {
		return err
	}
	uses, err := h.list.Uses(ctx, all)
	if err != nil {
		return err
	}
	clear(h.known)
	h.names.Clear()
	h.order = h.order[:0]
	for _, u := range uses {
		h.learn(u)
	}
	for name := range h.past {
		if _, ok := h.known[name]; !ok && !h.past[name].family {
			delete(h.past, name)
		}
	}
	h.scanned, h.took = time.Now(), time.Since(began)
	return nil
}

func (h *hub) learn(u listing.Use) {
	name := id(u.Resource)
	if _, ok := h.known[name]; !ok {
		h.order = append(h.order, name)
	}
	h.known[name] = u
	h.names.Store(name, u.Resource)
}

// poll asks for the keys that are shown; where there are few, for all.
func (h *hub) poll(ctx context.Context, views map[view][]chan []byte) error {
	wanted := map[string]bool{}
	if len(h.known) <= pollAll {
		for name := range h.known {
			wanted[name] = true
		}
	} else {
		for v := range views {
			found := h.found(v)
			for _, u := range found[:min(len(found), v.rows)] {
				wanted[id(u.Resource)] = true
			}
			if v.chosen != "" {
				wanted[v.chosen] = true
			}
		}
	}
	var some []listing.Resource
	totals := map[string]bool{} // families whose tenants are all read when one of them is
	for name := range wanted {
		if u, ok := h.known[name]; ok && len(some) < pollMost {
			some = append(some, u.Resource)
			totals[u.Part("")] = u.HasTotal
		}
	}
	for _, u := range h.known { // their idle tenants, too, which cost no command
		if totals[u.Part("")] {
			some = append(some, u.Resource)
		}
	}
	uses, err := h.list.Uses(ctx, some)
	if err != nil {
		return err
	}
	for _, u := range uses {
		h.learn(u)
	}
	return nil
}

func (h *hub) tell(ctx context.Context, views map[view][]chan []byte) {
	details := map[string]*detail{}
	for v, browsers := range views {
		if _, ok := details[v.chosen]; !ok && v.chosen != "" {
			details[v.chosen] = h.detail(ctx, v.chosen)
		}
		text, err := json.Marshal(h.state(v, details[v.chosen]))
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
			states <- text
		}
		h.mu.Unlock()
	}
}
