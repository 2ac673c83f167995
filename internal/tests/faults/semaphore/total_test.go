package semaphore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// span is a hold as its holder saw it: within the lease.
type span struct {
	key      string
	from, to time.Time
}

// mostSpans is the most spans at one moment, of all keys and of any one key.
func mostSpans(spans []span) (all int, key map[string]int) {
	type edge struct {
		at    time.Time
		key   string
		delta int
	}
	var edges []edge
	for _, s := range spans {
		edges = append(edges, edge{s.from, s.key, 1}, edge{s.to, s.key, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.delta - b.delta
	})
	now, total := map[string]int{}, 0
	key = map[string]int{}
	for _, e := range edges {
		total += e.delta
		now[e.key] += e.delta
		all, key[e.key] = max(all, total), max(key[e.key], now[e.key])
	}
	return all, key
}

// Two greedy tenants with a thousand waiters each fill the total, from four handles.
// The first request of each modest tenant is granted within two turns of its arrival,
// and no limit is passed.
func TestModestTenantsAreGrantedWithinTwoTurns(t *testing.T) {
	harness.OnNewest(t, func(t *testing.T, target redistest.Target) {
		seed, random := harness.Seeded(t)
		const total, limit, handles, greedy = 10, 5, 4, 250
		var mu sync.Mutex
		var spans []span
		var waits []time.Duration
		name := redistest.Name(t)
		var all []*semaphore.Semaphore
		for range handles {
			h, err := semaphore.New(target.Client(t), semaphore.Config{Name: name, Limit: limit, Total: total, TTL: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { harness.CloseWithin(t, closeBound, h) })
			all = append(all, h)
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		turn := func(h *semaphore.Semaphore, key string, hold time.Duration) bool {
			l, err := h.Acquire(ctx, key)
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("acquire: %v", err)
				}
				return false
			}
			from := time.Now()
			time.Sleep(hold)
			mu.Lock()
			spans = append(spans, span{key, from, time.Now()})
			mu.Unlock()
			return l.Release() == nil
		}
		hold := func() time.Duration { return 30*time.Millisecond + rand.N(40*time.Millisecond) }
		for _, h := range all {
			for _, key := range []string{"greedy", "eager"} {
				for range greedy {
					wg.Go(func() {
						for turn(h, key, hold()) {
						}
					})
				}
			}
		}
		queue := fmt.Sprintf("leasehold:sem:{%s}:queue", name)
		redistest.Eventually(t, "two thousand waiters", func() bool {
			return target.Admin(t).ZCard(t.Context(), queue).Val() >= 2*greedy*handles-total
		})
		for tenant := range 8 {
			pause := time.Duration(random.IntN(100)) * time.Millisecond
			wg.Go(func() {
				for i := range 5 {
					time.Sleep(pause + 100*time.Millisecond)
					arrived := time.Now()
					if !turn(all[(tenant+i)%handles], fmt.Sprintf("modest%d", tenant), hold()) {
						continue
					}
					mu.Lock()
					waits = append(waits, spans[len(spans)-1].from.Sub(arrived))
					for j := len(spans) - 1; j >= 0; j-- {
						if spans[j].key == fmt.Sprintf("modest%d", tenant) {
							waits[len(waits)-1] = spans[j].from.Sub(arrived)
							break
						}
					}
					mu.Unlock()
				}
			})
		}
		redistest.Eventually(t, "all modest requests", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(waits) == 40
		})
		stop()
		wg.Wait()
		sum, keys := mostSpans(spans)
		slices.Sort(waits)
		t.Logf("%d turns; waits of modest tenants: p50 %v, worst %v", len(spans), waits[len(waits)/2], waits[len(waits)-1])
		if worst := waits[len(waits)-1]; worst > 2*70*time.Millisecond {
			t.Errorf("a modest tenant waited %v; two turns are at most 140 ms (seed %d)", worst, seed)
		}
		if sum > total {
			t.Errorf("%d permits were held at once of %d", sum, total)
		}
		for key, n := range keys {
			if n > limit {
				t.Errorf("%s held %d permits at once of %d", key, n, limit)
			}
		}
	})
}

// audit reads at one moment what is in use, by whom, and the limits.
const audit = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return { redis.call('ZRANGE', KEYS[1], '(' .. now, '+inf', 'BYSCORE'), redis.call('HGETALL', KEYS[2]) }`

type sample struct {
	at      time.Time // before it was sent
	members []string
	limits  map[string]int
}

func look(ctx context.Context, rdb redis.UniversalClient, name string) (sample, error) {
	s := sample{at: time.Now(), limits: map[string]int{}}
	base := fmt.Sprintf("leasehold:sem:{%s}:", name)
	v, err := rdb.Eval(ctx, audit, []string{base + "holders", base + "limits"}).Slice()
	if err != nil {
		return s, err
	}
	for _, m := range v[0].([]any) {
		s.members = append(s.members, m.(string))
	}
	pairs := v[1].([]any)
	for i := 0; i+1 < len(pairs); i += 2 {
		s.limits[pairs[i].(string)], _ = strconv.Atoi(pairs[i+1].(string))
	}
	return s, nil
}

// Limits and the total are set some ninety times a second, through a network that loses
// and delays replies and breaks connections. No permit is granted beyond the limit in
// force, no late copy undoes a later setting, and all that wait are served after the
// last raise.
func TestLimitsThatChangeAllTheTime(t *testing.T) {
	harness.OnNewest(t, func(t *testing.T, target redistest.Target) {
		seed, _ := harness.Seeded(t)
		const configured = 4
		name, admin := redistest.Name(t), target.Admin(t)
		p := redistest.NewProxy(t, target.Addr())
		var sick atomic.Bool
		sick.Store(true)
		p.SetHook(func(ev redistest.Event) redistest.Action {
			if ev.Stage != redistest.OnReply || !sick.Load() {
				return redistest.Pass
			}
			switch n := rand.IntN(200); {
			case n < 2:
				return redistest.Close
			case n < 4:
				gate := make(chan struct{})
				time.AfterFunc(rand.N(60*time.Millisecond), func() { close(gate) })
				return redistest.Hold(gate)
			default:
				return redistest.Pass
			}
		})
		open := func() *semaphore.Semaphore {
			h, err := semaphore.New(p.Client(), semaphore.Config{Name: name, Limit: configured, Total: 2 * configured, TTL: 4 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { harness.CloseWithin(t, closeBound, h) })
			return h
		}
		all := []*semaphore.Semaphore{open(), open(), open()}
		keys := []string{"a", "b", "c"}
		ctx, stop := context.WithTimeout(t.Context(), harness.Soak(t, 6*time.Second))
		defer stop()
		var workers, setters sync.WaitGroup
		var turns, settings, unanswered atomic.Int64
		for i := range 60 {
			workers.Go(func() {
				for ctx.Err() == nil {
					n := 1 + rand.N(2)
					l, err := all[i%3].AcquireN(ctx, keys[i%len(keys)], n)
					if err != nil {
						if ctx.Err() == nil && !errors.Is(err, leasehold.ErrUnavailable) && !errors.Is(err, leasehold.ErrInvalid) {
							t.Errorf("acquire: %v", err)
						}
						continue
					}
					time.Sleep(rand.N(8 * time.Millisecond))
					_ = l.Release()
					turns.Add(1)
				}
			})
		}
		// One setter for each limit: so what is in force between two of its calls is known.
		type call struct{ from, to time.Time }
		var mu sync.Mutex
		calls := map[string][]call{}
		stored := map[string]int{}
		for i, key := range append(slices.Clone(keys), "") {
			setters.Go(func() {
				for ctx.Err() == nil {
					time.Sleep(rand.N(90 * time.Millisecond))
					n, from := rand.N(8), time.Now()
					setting, cancel := ctx, context.CancelFunc(func() {})
					if rand.IntN(20) == 0 {
						setting, cancel = context.WithTimeout(ctx, rand.N(2*time.Millisecond))
					}
					var err error
					if key == "" {
						err = all[i%3].SetTotal(setting, n)
					} else {
						err = all[i%3].SetLimit(setting, key, n)
					}
					cancel()
					settings.Add(1)
					mu.Lock()
					to := time.Now()
					if err != nil {
						unanswered.Add(1)
						to = to.Add(6 * time.Second) // it may come until then
						stored[key] = -1
					} else {
						stored[key] = n
					}
					calls[key] = append(calls[key], call{from, to})
					if err == nil { // it ends those before
						for j := range calls[key][:len(calls[key])-1] {
							if c := &calls[key][j]; c.to.After(from) {
								c.to = from
							}
						}
					}
					mu.Unlock()
				}
			})
		}
		setters.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(300*time.Millisecond + rand.N(300*time.Millisecond))
				p.CloseAll()
			}
		})
		var samples []sample
		for ctx.Err() == nil {
			s, err := look(t.Context(), admin, name)
			if err != nil {
				t.Fatal(err)
			}
			samples = append(samples, s)
			time.Sleep(time.Millisecond)
		}
		workers.Wait()
		setters.Wait()

		quiet := func(key string, from, to time.Time) bool {
			for _, c := range calls[key] {
				if c.from.Before(to) && c.to.After(from) {
					return false
				}
			}
			return true
		}
		judged, violations := 0, 0
		for i := 1; i < len(samples); i++ {
			was, is := samples[i-1], samples[i]
			for _, key := range append(slices.Clone(keys), "") {
				of := func(s sample) (n int, set map[string]bool) {
					set = map[string]bool{}
					for _, m := range s.members {
						if strings.HasPrefix(m, key) && (key == "" || strings.HasPrefix(m, key+":")) {
							set[m] = true
						}
					}
					return len(set), set
				}
				limit := is.limits[key]
				if limit != was.limits[key] || !quiet(key, was.at, is.at.Add(2*time.Millisecond)) {
					continue
				}
				if limit == 0 {
					if limit = configured; key == "" {
						limit = 2 * configured
					}
				}
				judged++
				n, now := of(is)
				_, before := of(was)
				for m := range now {
					if n > limit && !before[m] {
						violations++
						t.Errorf("%q: %s was granted, with %d in use of %d (seed %d)", key, m, n, limit, seed)
						break
					}
				}
			}
		}
		t.Logf("%d turns, %d settings (%d without an answer), %d samples, %d judged, %d violations",
			turns.Load(), settings.Load(), unanswered.Load(), len(samples), judged, violations)

		// The last raise: all are served, and what was stored stays.
		sick.Store(false)
		for _, key := range keys {
			if err := all[0].SetLimit(t.Context(), key, 50); err != nil {
				t.Fatal(err)
			}
		}
		if err := all[0].SetTotal(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		var last sync.WaitGroup
		for i := range 30 {
			last.Go(func() {
				if err := all[i%3].Do(t.Context(), keys[i%3], func(context.Context) error { return nil }); err != nil {
					t.Errorf("after the last raise: %v", err)
				}
			})
		}
		last.Wait()
		time.Sleep(100 * time.Millisecond)
		if s, err := look(t.Context(), admin, name); err != nil || s.limits["a"] != 50 || s.limits[""] != 100 {
			t.Errorf("the limits are %v, %v", s.limits, err)
		}
		for _, key := range keys {
			_ = all[0].SetLimit(t.Context(), key, 0)
		}
		_ = all[0].SetTotal(t.Context(), 0)
	})
}

// The slot of a family moves again and again while it is in use: every key is declared,
// so that no script stops half-way, and no limit is passed.
func TestTotalWhileItsSlotMoves(t *testing.T) {
	v := redistest.Newest(t)
	cluster := redistest.StartCluster(t, v)
	rdb := cluster.Client()
	name := redistest.Name(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	var mu sync.Mutex
	var spans []span
	for range 2 {
		h, err := semaphore.New(rdb, semaphore.Config{Name: name, Limit: 2, Total: 3, TTL: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { harness.CloseWithin(t, closeBound, h) })
		for i := range 12 {
			key := fmt.Sprintf("k%d", i%3)
			workers.Go(func() {
				for ctx.Err() == nil {
					l, err := h.Acquire(ctx, key)
					if err != nil {
						if ctx.Err() == nil && !errors.Is(err, leasehold.ErrUnavailable) {
							t.Errorf("acquire: %v", err)
						}
						continue
					}
					from := time.Now()
					time.Sleep(rand.N(6 * time.Millisecond))
					to := time.Now()
					if l.Context().Err() == nil {
						mu.Lock()
						spans = append(spans, span{key, from, to})
						mu.Unlock()
					}
					_ = l.Release()
				}
			})
		}
	}
	slot := fmt.Sprintf("leasehold:sem:{%s}:holders", name)
	for i := range 6 {
		time.Sleep(100 * time.Millisecond)
		from, to := cluster.NodeFor(slot), cluster.Nodes[i%3]
		if to.Addr() == from.Addr() {
			to = cluster.Nodes[(i+1)%3]
		}
		move := cluster.BeginMove(slot, to)
		time.Sleep(20 * time.Millisecond)
		move.MoveKeys()
		time.Sleep(20 * time.Millisecond)
		move.Finish()
	}
	time.Sleep(300 * time.Millisecond)
	stop()
	workers.Wait()
	all, keys := mostSpans(spans)
	t.Logf("%d turns", len(spans))
	if all > 3 || len(spans) < 100 {
		t.Errorf("%d permits were held at once of 3, in %d turns", all, len(spans))
	}
	for key, n := range keys {
		if n > 2 {
			t.Errorf("%s held %d permits at once of 2", key, n)
		}
	}
}
