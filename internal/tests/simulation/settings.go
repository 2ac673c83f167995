package simulation

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/semaphore"
)

// mayArrive is for how long a setting without an answer may still be stored: its void
// time, and the most that a client's map of the server's clock is off on a slow network.
const mayArrive = late + mapIsOff

// mapIsOff is the most that a client's map of the server's clock is off on a slow network, and
// so the number of a setting.
const mapIsOff = 7 * time.Second

// setting is a SetLimit or SetTotal.
type setting struct {
	handle *semaphore.Semaphore
	key    string // "" = the total
	value  int
	called time.Time
	over   time.Time // zero: under way
	ok     bool
}

// value is a limit that was stored on the server at a time; 0 = none was any more.
type value struct {
	at    time.Time
	limit int
}

// history is which limits were set, and which were stored on the server when.
type history struct {
	mu       sync.Mutex
	settings map[*setting]struct{}
	values   map[string][]value
}

// changes notes what a call changed of the stored limits. That a late copy of a setting changes nothing the references
// of the scripts judge.
func (h *history) changes(before, after map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range append(slices.Clone(totKeys), "") {
		if before[key] != after[key] {
			h.values[key] = append(h.values[key], value{time.Now(), after[key]})
		}
	}
}

// set notes that a semaphore's limit is set from now on, for a span: its key expires.
func (h *history) set(key string, limit int, span time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	until := slices.DeleteFunc(h.values[key], func(v value) bool { return v.at.After(now) })
	h.values[key] = append(until, value{now, limit}, value{now.Add(span.Truncate(time.Millisecond)), 0})
}

// wasStored reports whether a setting was in force at some moment while it was under
// way, or was overtaken by another one.
func (h *history) wasStored(s *setting) bool {
	last := 0
	for _, v := range h.values[s.key] {
		if v.at.After(s.over) {
			break
		}
		if !v.at.Before(s.called) && v.limit == s.value {
			return true
		}
		if v.at.Before(s.called) {
			last = v.limit
		}
	}
	if last == s.value {
		return true
	}
	for o := range h.settings {
		unsure := mapIsOff // for which of the two has the higher number
		if s.handle == o.handle {
			unsure = 0
		}
		if o != s && o.key == s.key && o.called.After(s.called.Add(-unsure)) {
			return true
		}
	}
	return false
}

// between are the limits of a key, or the totals, that were in force for some process
// at some moment between two times: the lowest and the highest.
func (h *history) between(key string, from, to time.Time) (least, most int) {
	configured := func(limit int) (int, int) {
		switch {
		case limit > 0:
			return limit, limit
		case slices.Contains(semKeys, key):
			return permits, permits
		case key == "":
			return min(total, otherTotal), max(total, otherTotal)
		default:
			return min(totLimit, otherLimit), max(totLimit, otherLimit)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	least, most = configured(0)
	for _, v := range h.values[key] {
		low, high := configured(v.limit)
		switch {
		case v.at.Before(from):
			least, most = low, high
		case !v.at.After(to):
			least, most = min(least, low), max(most, high)
		}
	}
	return least, most
}

// adjust is a SetLimit or SetTotal; it reports whether that returned nil.
func (w *world) adjust(c *client, st step) bool {
	ctx, cancel, patient := c.patience(st)
	defer cancel()
	defer patient()
	s := &setting{handle: c.total, key: st.key, value: st.permits, called: time.Now()}
	good := w.good(c, s.called)
	h := &w.judge.limits
	h.mu.Lock()
	h.settings[s] = struct{}{}
	h.mu.Unlock()
	var err error
	if st.key == "" {
		err = c.total.SetTotal(ctx, st.permits)
	} else {
		err = c.total.SetLimit(ctx, st.key, st.permits)
	}
	h.mu.Lock()
	s.over, s.ok = time.Now(), err == nil
	stored := !s.ok || h.wasStored(s)
	h.mu.Unlock()
	if c.dead.Load() || w.over() {
		return false
	}
	switch {
	case !stored:
		w.fail("settings", "%s returned nil, and was not stored", st)
	case err == nil:
		w.note("set")
	case errors.Is(err, leasehold.ErrClosed) && c.closing.Load(), errors.Is(err, context.Canceled) && ctx.Err() != nil:
		w.note("not set")
	case errors.Is(err, leasehold.ErrUnavailable):
		w.note("set unavailable")
		w.failIf(good && w.calm(s.called, s.over) && !c.closing.Load(), "S4", "%s: %v, on a good network", st, err)
	default:
		w.fail("S4", "%s: %v", st, err)
	}
	return err == nil
}

// raise is the last setting of a run: back to the configured limits, by which all that wait can be served.
func (w *world) raise() {
	all := w.living()
	if len(all) == 0 || len(w.judge.limits.settings) == 0 {
		return
	}
	w.wait(w.since(time.Now()) + mayArrive) // the last of those without an answer
	if w.over() {
		return
	}
	for _, key := range append(slices.Clone(totKeys), "") {
		st := step{verb: adjust, key: key}
		for range 40 { // the first tries may meet dead connections
			if w.adjust(all[0], st) || w.over() {
				break
			}
		}
	}
}
