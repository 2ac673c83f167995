package singleflight_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A fleet of caches on a bad network, minutes of it in a second, from one seed:
// nobody who comes after an Invalidate sees what was loaded before it, no two
// load at once, everybody is served in the end, and nothing is left.
//
// LEASEHOLD_SEED runs one schedule again (goroutines of one instant may still
// run in another order), LEASEHOLD_SEEDS more of them.
func TestSimulation(t *testing.T) {
	first, seeds := uint64(time.Now().UnixNano()), 3
	if s, err := strconv.ParseUint(os.Getenv("LEASEHOLD_SEED"), 10, 64); err == nil {
		first, seeds = s, 1
	}
	if n, err := strconv.Atoi(os.Getenv("LEASEHOLD_SEEDS")); err == nil {
		seeds = n
	}
	for i := range seeds {
		seed := first + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		})
		if t.Failed() {
			t.Fatalf("again with LEASEHOLD_SEED=%d", seed)
		}
	}
}

const (
	simClients  = 4
	simWorkers  = 5
	simKeys     = 3
	simSpan     = time.Minute
	simLeaseTTL = time.Second
)

// simulation is the fleet, and what happened in it.
type simulation struct {
	*testing.T
	end time.Time

	mu      sync.Mutex
	loads   []simLoad
	reads   []simRead
	drops   []simDrop
	calls   []simCall
	outcome map[string]int
}

// simLoad is one call of a loader: its ctx may have ended before it returned.
type simLoad struct {
	key       string
	began, to time.Time
	group     *singleflight.Group[string]
	many      bool // of several keys: it may go on for the others
}

// simRead is one value that a caller got.
type simRead struct {
	key   string
	began time.Time
	load  int
	from  singleflight.Source
}

// simCall is a call that may have waited for a key.
type simCall struct {
	group    *singleflight.Group[string]
	key      string
	from, to time.Time
}

// simDrop is an Invalidate, or a FLUSHALL of all keys: done is zero where it
// failed, so that it may or may not have happened.
type simDrop struct {
	key          string
	called, done time.Time
}

func simulate(t *testing.T, seed uint64) {
	mini, client := redistest.Bubble(t)
	direct := client()
	net := redistest.NewNetwork(seed, mini.Dial)
	s := &simulation{T: t, end: time.Now().Add(simSpan), outcome: map[string]int{}}
	net.SetBad(true)
	var groups []*singleflight.Group[string]
	var workers sync.WaitGroup
	for c := range simClients {
		cfg := singleflight.Config[string]{
			Name: "sim", TTL: 300 * time.Millisecond, LeaseTTL: simLeaseTTL,
			Logger: slog.New(slog.DiscardHandler),
		}
		if c%2 == 0 {
			cfg.StaleFor, cfg.EarlyRefresh = time.Second, 1
		}
		if c == 1 {
			cfg.ErrorTTL, cfg.StaleIfError = 100*time.Millisecond, 2*time.Second
		}
		g, err := singleflight.New(client(func(o *redis.Options) { o.Dialer = net.Dial }), cfg)
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, g)
		for w := range simWorkers {
			rng := rand.New(rand.NewPCG(seed, uint64(c*100+w)))
			workers.Go(func() {
				for time.Now().Before(s.end) {
					s.work(g, rng)
				}
			})
		}
	}
	chaos := rand.New(rand.NewPCG(seed, 99))
	for time.Now().Before(s.end) {
		time.Sleep(time.Duration(chaos.IntN(4000)) * time.Millisecond)
		switch chaos.IntN(10) {
		case 0:
			net.CutSome(1)
		case 1, 2:
			net.CutSome(0.3)
		case 3:
			if err := direct.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		case 4:
			called := time.Now()
			if err := direct.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			s.dropped(simDrop{called: called, done: time.Now()})
		}
	}
	net.SetBad(false)
	workers.Wait()
	s.calm(groups)
	for _, g := range groups {
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(10 * time.Second)
	for _, key := range mini.Keys() {
		t.Errorf("%s is left", key)
	}
	s.check()
	t.Logf("%d loads, %d reads, %d drops, %v", len(s.loads), len(s.reads), len(s.drops), s.outcome)
}

// calm checks that everybody is served now that all is well.
func (s *simulation) calm(groups []*singleflight.Group[string]) {
	for _, g := range groups {
		for k := range simKeys {
			began := time.Now()
			key := fmt.Sprint("k", k)
			var err error
			for range 30 { // the first tries meet connections that were cut, and loads that fail
				if _, err = g.Do(s.Context(), key, s.loader(g, key, rand.New(rand.NewPCG(1, 2)), false, false)); err == nil {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if err != nil {
				s.Errorf("after the faults: %v", err)
			}
			if d := time.Since(began); d > simLeaseTTL+12*time.Second {
				s.Errorf("after the faults a Do took %v", d)
			}
		}
	}
}

var errSim = errors.New("the origin is down")

// loader returns the number of its load.
func (s *simulation) loader(g *singleflight.Group[string], key string, rng *rand.Rand, mayFail, many bool) func(ctx context.Context) (string, error) {
	span := time.Duration(rng.IntN(200)) * time.Millisecond
	if rng.IntN(10) == 0 {
		span = time.Duration(rng.IntN(3*int(simLeaseTTL/time.Millisecond))) * time.Millisecond
	}
	fails, obeys := mayFail && rng.IntN(5) == 0, rng.IntN(2) == 0
	long := strings.Repeat(".", rng.IntN(2)*6000)
	return func(ctx context.Context) (string, error) {
		s.mu.Lock()
		n := len(s.loads)
		s.loads = append(s.loads, simLoad{key: key, began: time.Now(), group: g, many: many})
		s.mu.Unlock()
		stopped := func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.loads[n].to.IsZero() {
				s.loads[n].to = time.Now()
			}
		}
		defer context.AfterFunc(ctx, stopped)()
		defer stopped()
		timer := time.NewTimer(span)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			if obeys {
				return "", ctx.Err()
			}
			<-timer.C
		}
		if fails {
			return "", errSim
		}
		return fmt.Sprint(n) + long, nil
	}
}

// work is one turn of a worker.
func (s *simulation) work(g *singleflight.Group[string], rng *rand.Rand) {
	key := fmt.Sprint("k", rng.IntN(simKeys))
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(8000))*time.Millisecond)
	defer cancel()
	if rng.IntN(3) == 0 {
		ctx = context.WithoutCancel(ctx)
	}
	began := time.Now()
	called := func(keys ...string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, k := range keys {
			s.calls = append(s.calls, simCall{g, k, began, time.Now()})
		}
	}
	switch rng.IntN(8) {
	case 0:
		err := g.Invalidate(ctx, key)
		d := simDrop{key: key, called: began}
		if err == nil {
			d.done = time.Now()
		}
		s.dropped(d)
		s.noted("invalidate", err)
	case 1:
		keys := []string{"k0", "k1", "k2"}
		loaders := map[string]func(context.Context) (string, error){}
		for _, k := range keys {
			loaders[k] = s.loader(g, k, rng, false, true)
		}
		found, err := g.DoMany(ctx, keys, func(ctx context.Context, missing []string) (map[string]string, error) {
			return s.loadMany(ctx, missing, loaders)
		})
		called(keys...)
		for k, v := range found {
			s.read(k, began, v, 0)
		}
		s.noted("do many", err)
	default:
		r, err := g.Fetch(ctx, key, s.loader(g, key, rng, true, false))
		called(key)
		if err == nil {
			s.read(key, began, r.Value, r.Source)
			s.noted(r.Source.String(), nil)
		} else {
			s.noted("fetch", err)
		}
	}
	time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
}

func (s *simulation) loadMany(ctx context.Context, missing []string, loaders map[string]func(context.Context) (string, error)) (map[string]string, error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	values := map[string]string{}
	var failed error
	for _, k := range missing {
		all.Go(func() {
			v, err := loaders[k](ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			values[k] = v
		})
	}
	all.Wait()
	return values, failed
}
