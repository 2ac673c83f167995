package call

import (
	"context"
	"sync"
	"time"
)

const (
	// maxReads is how many round trips with look-ups may be under way to one server. While fewer
	// are, a look-up is sent at once, by itself. Else it waits for the next round trip that
	// begins, which it shares with all that wait: a crowd would wait for connections instead,
	// one round trip each.
	maxReads = 16
	// A shared round trip reads from leastShared to mostShared keys, as many as bring about
	// sharedBytes by the largest value of the one before.
	leastShared = 16
	mostShared  = 1000
	sharedBytes = 1 << 20
)

// reads are the look-ups of one server.
type reads struct {
	mu      sync.Mutex
	trips   int // round trips under way
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

func (c *link) readsOf(node string) *reads {
	if node == "" {
		return &c.onlyReads
	}
	if r, ok := c.reads.Load(node); ok {
		return r.(*reads)
	}
	r, _ := c.reads.LoadOrStore(node, &reads{})
	return r.(*reads)
}

// join returns the look-up to wait for, or nil if the caller is to send one itself, which must be
// followed by ended.
func (r *reads) join(key string, most int) *read {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trips < most {
		r.trips++
		return nil
	}
	one := r.byKey[key]
	if one == nil {
		one = &read{key: key, done: make(chan struct{})}
		if r.byKey == nil {
			r.byKey = map[string]*read{}
		}
		r.byKey[key], r.line = one, append(r.line, one)
	}
	return one
}

// ended ends a round trip. The next one begins, if anybody waits for it, on a goroutine of its
// own: a hook may have ended this one.
func (r *reads) ended(c *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.line) == 0 {
		r.trips--
		return
	}
	n := min(len(r.line), max(leastShared, min(mostShared, sharedBytes/max(1, r.largest))))
	some := r.line[:n:n]
	if r.line = r.line[n:]; len(r.line) == 0 {
		r.line = nil
	}
	for _, one := range some {
		delete(r.byKey, one.key)
	}
	go func() {
		defer r.ended(c)
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
	all = c.GetMany(ctx, keys)
}

// wait waits for the outcome, until ctx ends, which must come from WithBound.
func (one *read) wait(ctx context.Context) (string, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(Bound)
	}
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case <-one.done:
		return one.found.Text, one.found.Err
	case <-ctx.Done():
		if err := ctx.Err(); err != nil {
			return "", err
		}
		return "", errNoAnswer // a ctx that breaks its contract
	case <-late.C:
		return "", context.DeadlineExceeded
	}
}
