package soak

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/check"
	"github.com/leasehold-go/leasehold/robustness/internal/fleet"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

func TestMain(m *testing.M) {
	redistest.UseServers()
	redistest.Main(m)
}

const (
	workers = 4
	spared  = 2               // of these, from being killed
	short   = 6 * time.Second // is what a run takes that nobody asked for
	samples = 160             // of a long run
)

// Nothing adds up, nothing is left, and nobody sees a promise broken.
func TestSoak(t *testing.T) {
	version := redistest.Newest(t)
	span, long := short, false
	if text, ok := os.LookupEnv("LEASEHOLD_SOAK"); ok {
		span = redistest.Must(time.ParseDuration(text))(t)
		long = span >= time.Minute
	}
	mixed := redistest.Must(fleet.Named("mixed"))(t)
	f := fleet.Start(t, fleet.Config{
		Seed: redistest.Seed(t), Fault: mixed[0], Version: version, Workers: workers, Spared: spared,
	})
	s := watch(t, f)
	s.span.From = history.Now()
	for began, last := time.Now(), (time.Time{}); time.Since(began) < span; {
		f.Strike()
		if time.Since(last) > max(span/samples, 200*time.Millisecond) {
			last = time.Now()
			f.Gauge()
			s.count(t)
		}
	}
	s.span.To = history.Now()
	h := f.Finish()
	s.nothingLeft(t)

	r := check.Sweep(h)
	r.Tell(t)
	ended(t, h)
	var b strings.Builder
	for _, c := range s.curves(h) {
		c.judge(t, &b, s.span, between(h, s.span, c.worker), long)
	}
	t.Logf("%s on %s: %d faults (%s); %v\n%s", span, h.Terms.Server, len(h.Struck), struck(h), r, b.String())
}

// kept is what the heap of a worker may have gained when everything is closed: what libraries make once.
const kept = mib / 2

// ended checks that workers had no goroutines and no connections left after they had closed everything, but
// what they had before they made it; and no more heap, as far as that can be told.
func ended(t *testing.T, h *history.History) {
	t.Helper()
	first, last := map[string]*history.Usage{}, map[string]*history.Usage{}
	for _, e := range h.Events {
		if e.Usage == nil {
			continue
		}
		if first[e.Worker] == nil {
			first[e.Worker] = e.Usage
		}
		last[e.Worker] = e.Usage
	}
	for worker, u := range last {
		if _, killed := h.Kills[worker]; killed {
			continue
		}
		// At first one more listened for what to do.
		redistest.AtMost(t, u.Goroutines, first[worker].Goroutines-1, "%s had %d goroutines after it had closed everything", worker)
		redistest.AtMost(t, u.Files, first[worker].Files, "%s had %d open files after it had closed everything", worker)
		redistest.AtMost(t, u.Heap, first[worker].Heap+kept, "%s had %d bytes in use after it had closed everything", worker)
	}
}

func struck(h *history.History) string {
	n := map[string]int{}
	for _, e := range h.Events {
		if e.Kind == history.Struck {
			n[e.Fault]++
		}
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		words = append(words, fmt.Sprint(n[name], " ", name))
	}
	return strings.Join(words, ", ")
}

// between counts the operations between the middles of the two quarters that are
// compared, of one worker or of all.
func between(h *history.History, span history.Span, worker string) (n int) {
	for _, o := range h.Ops {
		if (worker == "" || o.Worker == worker) && o.At > span.From+span.Length()*3/8 && o.At < span.From+span.Length()*7/8 {
			n++
		}
	}
	return n
}

// judge writes a line on a curve, and fails the test if the curve rises.
func (c curve) judge(t *testing.T, b *strings.Builder, span history.Span, ops int, long bool) {
	t.Helper()
	early, some := c.median(span, 1)
	late, more := c.median(span, 3)
	fmt.Fprintf(b, "%s: %.0f at first, %.0f in the 2nd quarter, %.0f in the last, %.0f at last; allowed +%.0f in %d operations\n",
		c.name, c.points[0].value, early, late, c.points[len(c.points)-1].value, c.allowed, ops)
	switch {
	case !long: // too short to judge
	case late-early > c.allowed:
		t.Errorf("%s: %.0f in the 2nd quarter, %.0f in the last one: more than %.0f above", c.name, early, late, c.allowed)
	case !some || !more || c.size > 0 && c.allowed > c.size*float64(ops)/100:
		t.Errorf("%s: %d operations do not show a leak at each hundredth: run for longer", c.name, ops)
	}
}
