package call

import (
	"context"
	"sync"
	"time"
)

const (
	// maxReads is how many round trips with look-ups may be under way to one server. While fewer are, a look-up is sent
	// at once, by itself. Else it waits for the next round trip that begins, which it shares with all that wait: a
	// crowd would wait for connections instead, one round trip each.
	maxReads = 16
	// A shared round trip reads from leastShared to mostShared keys, as many as bring about
	// sharedBytes by the largest value of the one before.
	leastShared = 16
	mostShared  = 1000
	sharedBytes = 1 << 20
	// hungReads is after how long without a round trip that ends all of them count as hung: a
	// hook of the client may never return. Look-ups that wait then go on without them.
	hungReads = time.Second
)

// reads are the look-ups of one server.
type reads struct {
	mu      sync.Mutex
	trips   int       // round trips under way
	hung    int       // how often all of them were given up
	moved   time.Time // when one last began or ended
	watched bool      // watch will run
	line    []*read
	byKey   map[string]*read // those of line
	largest int              // bytes of a value
}

// A read is a look-up that has not been sent yet, for all callers that wait for its key. None of
// them began after it was sent, so none is served a value that was invalidated before it began.
type read struct {
	key   string
	found Found
	done  chan struct{}
}

// join returns the look-ups to wait for, or nil if the caller is to make a round trip itself, which
// must be followed by ended with the same number.
func (r *reads) join(c *link, keys ...string) (shared []*read, hung int) {
	most := maxReads
	if c.connections > 0 {
		most = min(most, c.connections)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trips < most {
		r.trips++
		r.moved = time.Now()
		return nil, r.hung
	}
	if r.byKey == nil {
		r.byKey = map[string]*read{}
	}
	for _, key := range keys {
		one := r.byKey[key]
		if one == nil {
			one = &read{key: key, done: make(chan struct{})}
			r.byKey[key], r.line = one, append(r.line, one)
		}
		shared = append(shared, one)
	}
	if !r.watched {
		r.watched = true
		time.AfterFunc(hungReads, func() { r.watch(c) })
	}
	return shared, r.hung
}

// ended ends a round trip that was not given up. The next one begins, if anybody waits for it.
func (r *reads) ended(c *link, hung int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if hung != r.hung {
		return
	}
	if r.moved = time.Now(); len(r.line) == 0 {
		r.trips--
		return
	}
	r.begin(c)
}

// watch gives all round trips up if none has ended for long and look-ups still wait.
func (r *reads) watch(c *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watched = len(r.line) > 0; !r.watched {
		return
	}
	now := time.Now()
	if now.Sub(r.moved) >= hungReads {
		r.hung++
		r.trips, r.moved = 1, now
		r.begin(c)
	}
	time.AfterFunc(hungReads-now.Sub(r.moved), func() { r.watch(c) })
}

// begin begins a round trip with those that wait, on a goroutine of its own: a hook may have
// ended the caller's. Called with the lock.
func (r *reads) begin(c *link) {
	n := min(len(r.line), max(leastShared, min(mostShared, sharedBytes/max(1, r.largest))))
	some := r.line[:n:n]
	if r.line = r.line[n:]; len(r.line) == 0 {
		r.line = nil
	}
	for _, one := range some {
		delete(r.byKey, one.key)
	}
	hung := r.hung
	go func() {
		defer r.ended(c, hung)
		r.share(c, some)
	}()
}

// share makes one round trip for several look-ups.
func (r *reads) share(c *link, some []*read) {
	var all []Found
	defer func() { // also if a hook ends this goroutine
		largest := 0
		for i, one := range some {
			if one.found.Err = errNoAnswer; i < len(all) {
				one.found = all[i]
				largest = max(largest, len(one.found.Text))
			}
			close(one.done)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.largest = largest
	}()
	ctx, cancel := c.WithBound(context.Background())
	defer cancel()
	keys := make([]string, len(some))
	for i, one := range some {
		keys[i] = one.key
	}
	all = c.readMany(ctx, keys)
}

// wait waits for the outcome, until ctx ends, which must come from WithBound.
func (r *reads) wait(ctx context.Context, one *read) (string, error) {
	select {
	case <-one.done:
		return one.found.Text, one.found.Err
	case <-ctx.Done():
		if err := ctx.Err(); err != nil {
			return "", err
		}
		return "", errNoAnswer // a ctx that breaks its contract
	}
}
