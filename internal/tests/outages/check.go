package outages

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"
)

// harm is what is not promised through the loss of acknowledged writes, and must
// not happen without.
type harm struct {
	overlaps int // turns of the mutex that began in another's
	crowded  int // permits that were one too many
	old      int // values that were loaded before an Invalidate was confirmed
}

// check ends the crowd and says what was broken. What is promised whatever
// happens fails the test here.
func (c *crowd) check() (h harm) {
	c.Helper()
	c.stop()
	c.fence()
	c.alive(c.locks)
	c.alive(c.permits)
	c.alive(c.tenants)
	h.overlaps, h.crowded, h.old = beyond(c.locks, 1), beyond(c.permits, limit), c.outdated()
	h.crowded += beyond(c.tenants, total)
	for _, key := range tenantKeys {
		h.crowded += beyond(slices.DeleteFunc(slices.Clone(c.tenants), func(t turn) bool { return t.key != key }), limit)
	}
	c.Logf("%d locks, %d permits, %d of a total, %d reads, %d loads, %d invalidations; %d stalls; errors %v; %+v",
		len(c.locks), len(c.permits), len(c.tenants), len(c.reads), len(c.loads), len(c.drops), len(c.stalls), c.errs, h)
	if len(c.locks) == 0 || len(c.permits) == 0 || len(c.tenants) == 0 || len(c.reads) == 0 || len(c.drops) == 0 {
		c.Error("too little was done to tell")
	}
	return h
}

// fence: a lock that was asked for when another had been granted has a higher
// token, and no two have the same (S2).
func (c *crowd) fence() {
	c.Helper()
	byGot := slices.SortedFunc(slices.Values(c.locks), func(a, b turn) int { return a.got.Compare(b.got) })
	byCall := slices.SortedFunc(slices.Values(c.locks), func(a, b turn) int { return a.called.Compare(b.called) })
	highest, next := uint64(0), 0
	seen := map[uint64]bool{}
	for _, t := range byCall {
		for ; next < len(byGot) && byGot[next].got.Before(t.called); next++ {
			highest = max(highest, byGot[next].token)
		}
		if t.token <= highest || seen[t.token] {
			c.Errorf("token %d, of a lock that was asked for when %d had been granted", t.token, highest)
		}
		seen[t.token] = true
	}
}

// alive: nothing is handed out that is over (S3).
func (c *crowd) alive(turns []turn) {
	c.Helper()
	for _, t := range turns {
		stalled := slices.ContainsFunc(c.stalls, func(s turn) bool { return s.called.Before(t.got) && s.got.After(t.deadline) })
		if late := t.got.Sub(t.deadline); late > 0 && !stalled {
			c.Errorf("a lease was handed out that had been over for %v", late)
		}
	}
}

// beyond counts the turns that were granted while most others were believed to
// be held.
func beyond(turns []turn, most int) (n int) {
	type edge struct {
		at   time.Time
		step int
	}
	var edges []edge
	for _, t := range turns {
		if t.got.Before(t.end) {
			edges = append(edges, edge{t.got, 1}, edge{t.end, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.step, b.step)) })
	held := 0
	for _, e := range edges {
		if held += e.step; e.step > 0 && held > most {
			n++
		}
	}
	return n
}

// outdated counts the reads, called after an Invalidate was confirmed, that gave
// a value whose load began before it was called (S5).
func (c *crowd) outdated() (n int) {
	byGot := slices.SortedFunc(slices.Values(c.drops), func(a, b turn) int { return a.got.Compare(b.got) })
	latest := make([]time.Time, len(byGot)+1) // when the latest of the first i was called
	for i, d := range byGot {
		latest[i+1] = latest[i]
		if d.called.After(latest[i]) {
			latest[i+1] = d.called
		}
	}
	for _, r := range c.reads {
		i := sort.Search(len(byGot), func(i int) bool { return !byGot[i].got.Before(r.called) })
		if c.loads[r.token].Before(latest[i]) {
			n++
		}
	}
	return n
}

// recovered waits until a call of each package that began after at has come to a
// good end, and says how long that took.
func (c *crowd) recovered(at time.Time) time.Duration {
	c.Helper()
	for name, turns := range map[string]*[]turn{"mutex": &c.locks, "semaphore": &c.permits, "family with a total": &c.tenants, "singleflight": &c.reads, "invalidate": &c.drops} {
		c.until(func() error {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, t := range slices.Backward(*turns) {
				if t.called.After(at) {
					return nil
				}
				if t.got.Before(at) {
					break
				}
			}
			return fmt.Errorf("%s does not work again; errors %v", name, c.errs)
		})
	}
	took := time.Since(at)
	c.Logf("all work again after %v", took)
	return took
}

func (c *crowd) until(ok func() error) {
	c.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
	}
	c.Fatalf("not within %v: %v", patience, err)
}

// work lets everybody go on for a while.
func (c *crowd) work() { time.Sleep(300 * time.Millisecond) }
