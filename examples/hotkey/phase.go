package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/singleflight"
)

// phase is what was counted while the servers answered in one mode: by the origin, of
// loads, and by the clients, of answers. Both are on one clock, and nothing of what the
// cache says of itself goes in.
type phase struct {
	mode  mode
	key   string
	set   settings
	began time.Time

	mu      sync.Mutex
	tally   tally
	sources map[singleflight.Source]int
	errors  int
	failed  string          // what the last failed request said
	latency []time.Duration // of the last requests that came when there was a value
	warm    time.Duration   // since when there was
	seen    map[int64]time.Duration
	overdue int // answers with a value as fresh that was not any more
	bars    []int
}

func newPhase(m mode, key string, set settings) *phase {
	return &phase{
		mode: m, key: key, set: set, began: time.Now(), tally: tally{ttl: set.ttl},
		sources: map[singleflight.Source]int{}, seen: map[int64]time.Duration{},
	}
}

func (p *phase) at() time.Duration { return time.Since(p.began) }

// load is the origin, a database or another service. The more loads run at once, the
// longer each takes: so do the things that it stands for, and that is how a stampede
// brings them down.
func (p *phase) load(ctx context.Context) (number int64, err error) {
	p.mu.Lock()
	run, due := p.tally.begin(p.at())
	if due {
		p.bars = append(p.bars[max(0, len(p.bars)-39):], 0)
	}
	if n := len(p.bars); n > 0 {
		p.bars[n-1]++
	}
	p.mu.Unlock()
	const parts, crowding = 10, 0.03
	for range parts {
		p.mu.Lock()
		slow := 1 + crowding*float64(p.tally.running-1)
		p.mu.Unlock()
		select {
		case <-time.After(time.Duration(float64(p.set.load) / parts * slow)):
		case <-ctx.Done():
			err = ctx.Err() // nobody wants the result any more
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tally.end(run, p.at(), err == nil)
	return run.number, err
}

func (p *phase) invalidate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tally.invalidate()
}

// answered counts an answer to a client, which asked at the time sent.
func (p *phase) answered(load int64, from singleflight.Source, err error, sent time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.errors++
		p.failed = err.Error()
		return
	}
	at := p.at()
	if len(p.seen) == 0 {
		p.warm = at
	}
	if sent >= p.warm {
		p.latency = append(p.latency[max(0, len(p.latency)-20_000):], at-sent)
	}
	p.sources[from]++
	// Where an earlier answer had the value already, it was published before that, so it
	// can be told when it was fresh no more.
	first, known := p.seen[load]
	if !known && len(p.seen) < 100_000 { // as after an hour without protection
		p.seen[load] = at
	} else if known && (from == singleflight.Cached || from == singleflight.Near) && sent > first+p.set.ttl+tolerance(p.set.ttl) {
		p.overdue++
	}
}

// settle waits until all loads have ended: that of a stale answer goes on behind it, or
// is about to begin.
func (p *phase) settle() {
	for quiet := 0; quiet < 20; quiet++ {
		time.Sleep(10 * time.Millisecond)
		p.mu.Lock()
		if p.tally.running > 0 {
			quiet = 0
		}
		p.mu.Unlock()
	}
}

func (p *phase) answers() (n int) {
	for _, k := range p.sources {
		n += k
	}
	return n
}

func (p *phase) p99() time.Duration {
	all := slices.Sorted(slices.Values(p.latency))
	if len(all) == 0 {
		return 0
	}
	return all[len(all)*99/100]
}

// row is what was counted until now.
func (p *phase) row() row {
	p.mu.Lock()
	defer p.mu.Unlock()
	return row{
		p.mode, p.answers(), p.tally.expiries, p.tally.loads, p.tally.most,
		p.sources[singleflight.Cached], p.sources[singleflight.Near], p.sources[singleflight.Stale], p.sources[singleflight.Shared], p.sources[singleflight.Loaded],
		p.errors, float64(p.p99().Microseconds()) / 1000, slices.Clone(p.bars),
	}
}

// verdict lists what went against the promises, and what kept them from being tried: a run
// without expiries, or without a crowd that would have stampeded, has shown nothing.
func (p *phase) verdict() (problems demo.Problems) {
	untried := p.untried()
	p.mu.Lock()
	defer p.mu.Unlock()
	bad := func(wrong bool, format string, args ...any) {
		problems.If(wrong, "protection "+string(p.mode)+": "+format, args...)
	}
	t := p.tally
	bad(p.errors > 0, "%d requests failed, such as: %s", p.errors, p.failed)
	bad(untried != "", "%s", untried)
	if p.mode == off {
		return problems
	}
	bad(t.loads != t.expiries, "%d loads in %d expiries: %v", t.loads, t.expiries, t.surplus)
	bad(t.most > 1, "%d loads ran at once", t.most)
	// A load whose value nobody gets is one too many. The last one of stale values may
	// end when all requests have been answered.
	unseen := t.loads - len(p.seen)
	bad(unseen != 0 && !(p.mode == stale && unseen == 1), "the clients got the values of %d loads, of %d", len(p.seen), t.loads)
	bad(p.overdue > 0, "%d answers had a value as fresh whose TTL was over", p.overdue)
	return problems
}

// untried says what keeps the promises from having been tried; "" is nothing.
func (p *phase) untried() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tally
	switch {
	case p.answers() == 0:
		return "no request was answered"
	case p.mode == off && (t.loads < 2*t.expiries || t.loads == 0):
		return fmt.Sprintf("%d loads in %d expiries is no stampede, so there was nothing to be prevented", t.loads, t.expiries)
	case p.mode == off:
		return ""
	case t.expiries < 2:
		return "nothing expired, so nothing was tried"
	case p.sources[singleflight.Cached] == 0:
		return "nothing was served from the cache, so nothing was tried"
	case p.mode == on && p.sources[singleflight.Shared] == 0:
		return "nobody waited for another's load, so nothing was tried"
	case p.mode == stale && p.sources[singleflight.Stale] == 0:
		return "nothing was served stale, so nothing was tried"
	case p.mode == near && p.sources[singleflight.Near] == 0:
		return "nothing was served from memory, so nothing was tried"
	}
	return ""
}

// tally counts loads at the origin and tells expiries apart.
//
// An expiry is a load that is due: one that begins while no other load runs and no value
// that was loaded before can still be fresh. A value is fresh for the TTL from its
// publication, which comes after its load has ended at the origin. So until that end plus
// TTL, less the tolerance, no other load is due. Every other load is one too many, also that
// of a caller that reads the cache just before the value is there and loads afterwards.
type tally struct {
	ttl                   time.Duration
	expiries, loads, most int
	surplus               []string // what is wrong with the first loads that were not due

	running    int           // all that run
	current    int           // of these, those that no invalidation has overtaken
	generation int           // of invalidations
	freshTill  time.Duration // a value is fresh until then at least
}

// tolerance is how much earlier than its TTL a value may count as expired: a server knows
// Redis's clock up to a round trip only. It hides no second load, which begins nearly a whole
// TTL too early.
func tolerance(ttl time.Duration) time.Duration { return ttl / 4 }

// load is a load that has begun.
type load struct {
	number     int64
	generation int
}

// begin counts a load that begins, and says whether it was due.
func (t *tally) begin(at time.Duration) (l load, due bool) {
	t.loads++
	what := ""
	switch {
	case t.current > 0:
		what = fmt.Sprintf("load %d began while another ran", t.loads)
	case at < t.freshTill-tolerance(t.ttl):
		what = fmt.Sprintf("load %d began while a value was fresh, for %v more", t.loads, (t.freshTill - at).Round(time.Millisecond))
	default:
		due = true
		t.expiries++
	}
	if !due && len(t.surplus) < 3 {
		t.surplus = append(t.surplus, what)
	}
	t.running++
	t.current++
	t.most = max(t.most, t.running)
	return load{int64(t.loads), t.generation}, due
}

// end counts a load's end. One that came to nothing leaves nothing fresh.
func (t *tally) end(l load, at time.Duration, done bool) {
	t.running--
	if l.generation != t.generation {
		return // its value is handed to those that waited, at most
	}
	t.current--
	if done {
		t.freshTill = at + t.ttl
	}
}

// invalidate is called before and after an invalidation: what had been loaded before, or
// was being loaded, leaves the next load due. Of what runs in between, nobody can say on which
// side it was; both are given the benefit.
func (t *tally) invalidate() {
	t.generation++
	t.current, t.freshTill = 0, 0
}
