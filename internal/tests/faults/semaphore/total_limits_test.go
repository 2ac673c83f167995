package semaphore

import (
	"context"
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

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// audit reads at one moment what each key has in use, and the limits.
const audit = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return { redis.call('ZRANGE', KEYS[1], '(' .. now, '+inf', 'BYSCORE'), redis.call('HGETALL', KEYS[2]) }`

type sample struct {
	at      time.Time // before it was sent
	done    time.Time // when the answer was there
	members []string
	limits  map[string]int
}

func look(ctx context.Context, rdb redis.UniversalClient, name string) (sample, error) {
	s := sample{at: time.Now(), limits: map[string]int{}}
	base := fmt.Sprintf("leasehold:sem:{%s}:", name)
	v, err := rdb.Eval(ctx, audit, []string{base + "holders", base + "limits"}).Slice()
	s.done = time.Now()
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
// and delays replies and breaks connections, while processes that hold and wait are
// killed. No permit is granted beyond the limit in
// force, no late copy undoes a later setting, and all that wait are served after the
// last raise.
func TestLimitsThatChangeAllTheTime(t *testing.T) {
	harness.OnNewest(t, func(t *testing.T, target redistest.Target) {
		seed, _ := harness.Seeded(t)
		const configured, ttl = 4, 1500 * time.Millisecond
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
			h, err := semaphore.New(p.Client(), semaphore.Config{Name: name, Limit: configured, Total: 2 * configured, TTL: ttl})
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
		var reading, setters sync.WaitGroup
		var settings, unanswered atomic.Int64
		seen := &record{waits: map[string][]time.Duration{}}
		hire := func() *redistest.Child {
			c := redistest.StartChild(t, tenantsChild, tenantsSpec{
				Addr: p.Addr(), Name: name, Limit: configured, Total: 2 * configured, TTL: ttl,
			}.String())
			reading.Go(func() { seen.listen(t, c) })
			for _, key := range keys {
				c.Send(fmt.Sprintf("churn %s 7", key))
			}
			return c
		}
		workers := []*redistest.Child{hire(), hire(), hire()}
		kills := 0
		setters.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-time.After(2*time.Second + rand.N(2*time.Second)): // each costs the others about two seconds
				}
				workers[i%3].Kill()
				workers[i%3] = hire()
				kills++
			}
		})
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
		setters.Wait()
		for _, c := range workers {
			c.Send("stop")
		}
		reading.Wait()

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
				if limit != was.limits[key] || !quiet(key, was.at, is.done) {
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
		t.Logf("%d turns, %d kills, %d settings (%d without an answer), %d samples, %d judged, %d violations",
			len(seen.spans), kills, settings.Load(), unanswered.Load(), len(samples), judged, violations)

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
