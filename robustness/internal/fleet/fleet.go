// Package fleet is a number of processes that use every primitive at random and tell of all that they do, on
// a real server behind a network that can be made to fail; and the faults that strike them, each by a name.
//
// What they tell is a history for the package check. Everything random comes from
// one seed: the same seed gives the same choices, though not the same timing.
//
// A test's TestMain has to call redistest.Main, since the workers are its own binary, started again.
package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// Config says what a Fleet is.
type Config struct {
	Seed     uint64
	Fault    Fault
	Version  redistest.Version
	Workers  int  // processes; 0 = 3
	Operated bool // somebody inspects and revokes in each worker: marks of that are kept
	Spared   int  // so many of them are never killed: what they don't give back adds up
}

// Fleet is workers, their server, and what lies between. Its methods are for the goroutine of the test.
type Fleet struct {
	tb     testing.TB
	cfg    Config
	terms  history.Terms
	family string
	store  string
	rng    *rand.Rand

	server  *redistest.Server // that the workers use now
	replica *redistest.Server // of a failover
	admin   *redis.Client     // of server, through no proxy
	workers []*member
	reading sync.WaitGroup

	mu     sync.Mutex
	events []history.Event
}

// member is a place among the workers: a worker that is killed has a successor in it.
type member struct {
	name  string
	proxy *redistest.Proxy
	child *redistest.Child
	read  chan struct{} // closed when all that it said has been read
}

func Start(tb testing.TB, cfg Config) *Fleet {
	tb.Helper()
	if cfg.Workers == 0 {
		cfg.Workers = 3
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 1))
	f := &Fleet{
		tb: tb, cfg: cfg, rng: rng,
		family: redistest.Name(tb), store: redistest.Shared(tb, cfg.Version).Addr(),
	}
	f.terms = history.Terms{
		Seed: cfg.Seed, Fault: cfg.Fault.Name, Server: cfg.Version.Name, Quiet: cfg.Fault.quiet,
		Limit: 2 + rng.IntN(3), TTL: f.between(300*time.Millisecond, 800*time.Millisecond).Truncate(time.Millisecond),
	}
	f.terms.Total = f.terms.Limit + 1 + rng.IntN(f.terms.Limit)
	if cfg.Fault.pair {
		f.server, f.replica = redistest.StartPair(tb, cfg.Version)
	} else {
		f.server = redistest.StartServer(tb, cfg.Version, cfg.Fault.args...)
	}
	f.admin = f.server.Client()
	tb.Cleanup(f.reading.Wait) // after the workers were ended; nobody speaks up later
	for i := range cfg.Workers {
		m := &member{name: fmt.Sprint("w", i+1), proxy: redistest.NewProxy(tb, f.server.Addr())}
		f.workers = append(f.workers, m)
		f.hire(m)
	}
	for _, m := range f.workers {
		m.child.Send("go")
	}
	return f
}

func (f *Fleet) hire(m *member) {
	f.tb.Helper()
	s := spec{
		Worker: m.name, Seed: f.rng.Uint64(), Addr: m.proxy.Addr(), Store: f.store, Family: f.family, Terms: f.terms, Operated: f.cfg.Operated,
	}
	m.child = redistest.StartChild(f.tb, child, string(redistest.Must(json.Marshal(s))(f.tb)))
	m.read = make(chan struct{})
	name, c, read := m.name, m.child, m.read
	f.reading.Go(func() { defer close(read); f.listen(name, c) })
}

const silence = 2 * time.Minute

func (f *Fleet) listen(name string, c *redistest.Child) {
	for finished := false; ; {
		line, err := c.LineWithin(silence)
		if err != nil {
			if !finished && !f.killed(name) {
				f.tb.Errorf("worker %s ended unasked: %v", name, err)
			}
			if err != io.EOF {
				f.tb.Errorf("worker %s: %v", name, err)
			}
			return
		}
		var e history.Event
		if json.Unmarshal([]byte(line), &e) != nil {
			continue // the kill cut its last line
		}
		finished = finished || e.Kind == history.Done // the pulse may have the last word
		f.note(e)
	}
}

func (f *Fleet) killed(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.events, func(e history.Event) bool { return e.Kind == history.Kill && e.Worker == name })
}

// note takes an event into the history.
func (f *Fleet) note(e history.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
}

func (f *Fleet) history() *history.History {
	f.mu.Lock()
	defer f.mu.Unlock()
	return redistest.Must(history.New(f.terms, f.events))(f.tb)
}

// Fewest is the number of operations of the key that has the fewest so far.
func (f *Fleet) Fewest() int {
	counts := map[string]int{}
	for _, o := range f.history().Ops {
		switch {
		case o.Return == history.Forever:
		case o.Op == history.Write:
			counts[o.Key]++
		case (o.Op == history.Acquire || o.Op == history.Lock) && o.Succeeded():
			counts[o.Key] += 2 // its grant and its end
		case o.Op == history.Read || o.Op == history.Invalidate:
			for _, key := range o.Keys {
				if o.Op == history.Invalidate || o.Values[key] != "" {
					counts[key]++
				}
			}
		}
	}
	fewest := counts["s0"]
	for _, key := range Keys() {
		fewest = min(fewest, counts[key])
	}
	return fewest
}

// Strike has the fault strike once and returns when that is over and healed.
func (f *Fleet) Strike() {
	f.tb.Helper()
	fault := f.cfg.Fault
	if len(fault.mix) > 0 {
		fault = fault.mix[f.rng.IntN(len(fault.mix))]
	}
	from := history.Now()
	fault.strike(f)
	f.note(history.Event{Kind: history.Struck, At: from, Until: history.Now(), Fault: fault.Name})
	f.sleep(20*time.Millisecond, 150*time.Millisecond)
}

// Finish lets the workers use every key once more, now that no fault strikes, and returns what has happened.
func (f *Fleet) Finish() *history.History {
	f.tb.Helper()
	f.note(history.Event{Kind: history.Healed, At: history.Now()})
	f.sleep(100*time.Millisecond, 200*time.Millisecond)
	for _, m := range f.workers {
		m.child.Send("finish")
	}
	for _, m := range f.workers {
		<-m.read
	}
	return f.history()
}

func (f *Fleet) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(f.rng.Int64N(int64(hi-lo)))
}

func (f *Fleet) sleep(lo, hi time.Duration) { time.Sleep(f.between(lo, hi)) }

func (f *Fleet) some() []*member {
	if f.rng.IntN(3) == 0 {
		return f.workers
	}
	i := f.rng.IntN(len(f.workers))
	return f.workers[i : i+1]
}

// How many keys of each kind there are.
const (
	semaphores = 3
	shared     = 3 // of a family with a total
	mutexes    = 3
	values     = 4
)

type spec struct {
	Worker   string // its name in the history
	Seed     uint64
	Addr     string // of the server, as this worker reaches it
	Store    string // of the server that keeps the guarded values, where no fault strikes
	Family   string
	Terms    history.Terms
	Operated bool // somebody inspects and revokes
}

func Keys() (keys []string) {
	for i, n := range []int{semaphores, shared, mutexes, values} {
		for k := range n {
			keys = append(keys, fmt.Sprint("stmc"[i:i+1], k))
		}
	}
	return keys
}

// valueTTL is short, so that values are loaded often.
const valueTTL = 150 * time.Millisecond

// operate is what an operator does: it looks at a key, and at times takes away something
// that it sees. A reason names the worker and the operation, so that it tells who did it.
func (c *client) operate() {
	time.Sleep(time.Duration(c.rng.IntN(30_000)) * time.Microsecond)
	keys := Keys()
	key := keys[c.rng.IntN(len(keys))]
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	id := c.begin(history.Event{Op: history.Inspect, Key: key})
	held, waits, err := c.shown(ctx, key)
	c.returned(id, history.Event{Shown: held}, err)
	all := slices.AppendSeq(waits, maps.Keys(held))
	if len(all) == 0 || c.rng.IntN(2) == 0 {
		return
	}
	target := all[c.rng.IntN(len(all))]
	if c.rng.IntN(3) == 0 { // it may have ended by the time
		time.Sleep(time.Duration(c.rng.IntN(20_000)) * time.Microsecond)
	}
	id = c.begin(history.Event{Op: history.Revoke, Key: key, Lease: target})
	c.returned(id, history.Event{}, c.revoke(ctx, key, target, history.Reason(c.Worker, id)))
}

// shown is what an Inspect shows: permits by the ID of their lease, and the IDs of waiters.
func (c *client) shown(ctx context.Context, key string) (held map[string]int, waits []string, err error) {
	var holders []leasehold.Holder
	var waiters []leasehold.Waiter
	switch key[0] {
	case 's', 't':
		s, e := c.permits(key).Inspect(ctx, key)
		holders, waiters, err = s.Holders, s.Waiters, e
	case 'm':
		s, e := c.mtx.Inspect(ctx, key)
		if err = e; s.Held {
			holders = append(holders, *s.Holder)
		}
		waiters = s.Waiters
	default:
		s, e := c.group.Inspect(ctx, key)
		if err = e; s.Loading {
			holders = append(holders, leasehold.Holder{ID: s.LoadID, Permits: 1, ExpiresIn: s.LeaseEndsIn})
		}
	}
	held = map[string]int{}
	for _, h := range holders {
		if h.ExpiresIn <= 0 {
			err = fmt.Errorf("%s is shown, which expires in %v", h.ID, h.ExpiresIn)
		}
		held[h.ID] += h.Permits
	}
	for _, w := range waiters {
		waits = append(waits, w.ID)
	}
	return held, waits, err
}

func (c *client) revoke(ctx context.Context, key, id, reason string) error {
	switch key[0] {
	case 's', 't':
		return c.permits(key).Revoke(ctx, key, id, reason)
	case 'm':
		return c.mtx.Revoke(ctx, key, id, reason)
	}
	return c.group.Revoke(ctx, key, id, reason)
}
