package call

import (
	"context"
	"sync"
	"time"
)

// A lane carries the calls of many goroutines to one server. A caller who finds
// few round trips under way makes its own: nothing is quicker alone. Who finds
// more waits for one of them to end, and is then sent with all others who wait,
// in one pipeline, or as many as fit. So pipelines are as long as the load makes
// them, and nobody waits for a timer where the server answers. This is how
// databases commit in groups.
type lane struct {
	c *Client

	mu      sync.Mutex
	trips   int         // round trips under way
	waiting []*Call     // for one of them to end, in order
	turns   []turn      // of those who waited before
	relief  *time.Timer // runs while somebody waits
}

const (
	// maxInFlight is how many round trips of a lane may be under way before calls wait
	// for each other.
	maxInFlight = 8
	// maxPipelineBytes is how many bytes one pipeline has, unless one call alone has more. A
	// server that answers before it has read all, over a connection without
	// buffers, would never go on: miniredis over net.Pipe, which is how tests have
	// a server inside testing/synctest, reads 4096 at a time. Longer pipelines
	// gain little: see docs/architecture.md.
	maxPipelineBytes = 4000
	// maxQueueDelay is how long a call waits for others' round trips: then it is sent
	// though none has ended. One that hangs must not hold up the rest.
	maxQueueDelay = 20 * time.Millisecond
	// maxFreeTurns is how many turns are kept for the next who wait.
	maxFreeTurns = 256
)

// turn is what a call waits on in a lane: for calls to send, its own the first of
// them, or nil where somebody else has sent them.
type turn chan []*Call

// do sends c, alone or with others, and returns when it has its outcome. ctx
// bounds it only where it is sent alone.
func (l *lane) do(ctx context.Context, c *Call) {
	l.mu.Lock()
	if l.trips < maxInFlight && len(l.waiting) == 0 {
		l.trips++
		l.mu.Unlock()
		defer l.ended()
		l.c.alone(ctx, c)
		return
	}
	if n := len(l.turns); n > 0 {
		c.turn, l.turns = l.turns[n-1], l.turns[:n-1]
	} else {
		c.turn = make(turn, 1)
	}
	if l.waiting = append(l.waiting, c); len(l.waiting) == 1 {
		l.watch()
	}
	l.mu.Unlock()
	if all := <-c.turn; all != nil {
		l.together(all)
	}
	l.mu.Lock()
	if len(l.turns) < maxFreeTurns {
		l.turns = append(l.turns, c.turn)
	}
	l.mu.Unlock()
}

// together sends calls that waited, on the goroutine of the first of them.
func (l *lane) together(all []*Call) {
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	// Whatever a user's hook does, the others must not wait for ever.
	defer func() {
		cancel()
		l.ended()
		for _, c := range all[1:] {
			c.turn <- nil
		}
	}()
	l.c.together(ctx, all)
}

// ended ends a round trip: all who wait now make the next one.
func (l *lane) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.trips--
		return
	}
	l.hand()
}

// hand lets the first who waits send all who do, as far as they fit. Called with
// the lock.
func (l *lane) hand() {
	n := fitting(l.waiting)
	all := l.waiting[:n:n]
	if l.waiting = l.waiting[n:]; len(l.waiting) == 0 {
		l.waiting = nil
		l.relief.Stop()
	} else {
		l.relief.Reset(maxQueueDelay)
	}
	all[0].turn <- all
}

// fitting is how many of calls, from the first on, maxPipelineBytes into one pipeline.
func fitting(calls []*Call) int {
	n, size := 1, calls[0].size()
	for n < len(calls) {
		if size += calls[n].size(); size > maxPipelineBytes {
			break
		}
		n++
	}
	return n
}

// watch looks after those who wait, should no round trip end soon. Called with
// the lock.
func (l *lane) watch() {
	if l.relief == nil {
		l.relief = time.AfterFunc(maxQueueDelay, l.relieve)
		return
	}
	l.relief.Reset(maxQueueDelay)
}

// relieve sends those who wait for round trips that hang. Where it comes late,
// and somebody waits who came since, no harm is done.
func (l *lane) relieve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 {
		l.trips++
		l.hand()
	}
}
