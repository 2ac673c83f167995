package simulation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
)

// longestDo is how long two loads may take, and what happens between them.
const longestDo = 2*longestLoad + 2*flightTTL + late

// served waits until everybody is, now that there are no more faults: L1.
func (w *world) served() {
	done := make(chan struct{})
	go func() { defer close(done); w.ops.Wait() }()
	select {
	case <-done:
	case <-w.failed:
		return
	case <-time.After(longestHold*8 + 2*time.Minute):
		w.mu.Lock()
		for b := range w.leases.waiting {
			w.fail("L1", "%s %s: client %d still waits since %v", b.kind, b.key, b.client.number, w.since(b.asked))
		}
		w.fail("L1", "calls that have not returned, long after the last fault")
		w.mu.Unlock()
		return
	}
	w.mu.Lock()
	w.loads = len(w.flights.loads)
	w.mu.Unlock()
	w.net.mu.Lock()
	w.replies = slices.Clone(w.net.replies)
	w.net.mu.Unlock()
	for _, c := range w.living() {
		if !w.over() {
			w.serves(c)
		}
		if !w.over() {
			w.runsSlots(c)
		}
	}
}

// try is a call by a client that must succeed now.
func (w *world) try(what string, c *client, call func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	for range 40 { // the first tries may meet dead connections, and the last load's failure
		if err = call(ctx); !errors.Is(err, leasehold.ErrUnavailable) && (err == nil || !strings.Contains(err.Error(), errOrigin.Error())) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.failIf(err != nil, "L1", "after the faults %s by client %d: %v", what, c.number, err)
}

// serves checks that a client gets everything at once.
func (w *world) serves(c *client) {
	took := func(what string, began time.Time, most time.Duration) {
		if d := time.Since(began); d > most {
			w.fail("L1", "after the faults %s by client %d took %v", what, c.number, d)
		}
	}
	try := func(what string, call func(ctx context.Context) error) { w.try(what, c, call) }
	for _, kind := range []string{"sem", "tot", "mtx"} { // always in this order
		for _, key := range keysOf[kind] {
			began := w.uses(c, kind, key)
			try("acquire "+key, func(ctx context.Context) error {
				b := &belief{client: c, kind: kind, key: key, permits: 1}
				release, err := b.acquire(ctx, c, step{})
				if err != nil {
					return err
				}
				w.mu.Lock()
				last := w.leases.last[key] // of a mutex
				w.failIf(last != nil && b.token <= last.token, "S2", "mtx %s: token %d was granted after %s", key, b.token, last)
				w.mu.Unlock()
				defer w.uses(c, kind, key)
				return release()
			})
			took("acquire "+key, began, ttls[kind]+10*time.Second+late)
		}
	}
	for _, key := range flightKeys {
		began := time.Now()
		try("do "+key, func(ctx context.Context) error {
			_, err := c.group.Do(ctx, key, w.loader(c, step{verb: do, load: 100 * time.Millisecond}, key))
			return err
		})
		took("do "+key, began, flightTTL+10*time.Second+late)
	}
}

// uses notes that a client uses a key now.
func (w *world) uses(c *client, kind, key string) time.Time {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases.uses(c, kind, key, now)
	return now
}

// clean checks that nothing is left on the server: L2.
func (w *world) clean() {
	if w.over() {
		return
	}
	ended := time.Now()
	time.Sleep(semTTL + late + 9*time.Second) // Extend
	for _, st := range w.script {
		if st.verb == limit {
			w.wait(st.at + st.span + time.Millisecond)
		}
	}
	revoked := map[string]int{}
	for _, rec := range w.leases.revoked {
		w.wait(w.since(rec.at) + tombstone + time.Millisecond)
		key := rec.key
		if rec.kind == "tot" {
			key = ""
		}
		for _, part := range []string{"revoked", "audit"} {
			revoked[redisKey(rec.kind, key, part)]++ // kept for 30 days
		}
	}
	for _, key := range w.mini.Keys() {
		if n := revoked[key]; n > 0 {
			if all, err := w.mini.Stream(key); err == nil && len(w.leases.flushes) == 0 && len(all) != n {
				w.fail("revoke", "%s has %d entries after %d revocations", key, len(all), n)
			}
			continue
		}
		if w.isOfSlot(key) {
			continue
		}
		if strings.HasPrefix(key, "leasehold:mtx:") && strings.HasSuffix(key, ":fence") {
			continue // kept for a day
		}
		if strings.HasSuffix(key, ":turns") {
			const chargesKept = 24 * time.Second
			if time.Sleep(time.Until(ended.Add(chargesKept + time.Millisecond))); !w.mini.Exists(key) {
				continue
			}
		}
		w.fail("L2", "%s is left on the server", key)
	}
}
