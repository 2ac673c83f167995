package engine

import (
	"context"
	"sync"
	"time"
)

// A lane carries the calls of many goroutines to one server. A caller who finds
// few round trips under way makes its own: nothing is quicker alone. Who finds
// more waits for one of them to end, and is then sent with all others who wait,
// in one pipeline. So pipelines are as long as the load makes them, and nobody
// waits for a timer where the server answers. This is how databases commit in
// groups.
type lane struct {
	e *Engine

	mu      sync.Mutex
	trips   int         // round trips under way
	waiting []*Call     // for one of them to end
	turns   []turn      // of those who waited before
	relief  *time.Timer // runs while somebody waits
}

const (
	// width is how many round trips of a lane may be under way before calls wait
	// for each other.
	width = 4
	// stuck is how long a call waits for others' round trips: then it is sent
	// though none has ended. One that hangs must not hold up the rest.
	stuck = 20 * time.Millisecond
)

// turn is what a call waits on in a lane: for calls to send, its own the first of
// them, or nil where somebody else has sent them.
type turn chan []*Call

// do sends c, alone or with others, and returns when it has its outcome. ctx
// bounds it only where it is sent alone.
func (l *lane) do(ctx context.Context, c *Call) {
	l.mu.Lock()
	if l.trips < width && len(l.waiting) == 0 {
		l.trips++
		l.mu.Unlock()
		defer l.ended()
		l.e.alone(ctx, c)
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
	l.turns = append(l.turns, c.turn)
	l.mu.Unlock()
}

// together sends calls that waited, on the goroutine of the first of them.
func (l *lane) together(all []*Call) {
	ctx, cancel := context.WithTimeout(context.Background(), CallBound)
	// Whatever a user's hook does, the others must not wait for ever.
	defer func() {
		cancel()
		l.ended()
		for _, c := range all[1:] {
			c.turn <- nil
		}
	}()
	l.e.together(ctx, all)
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

// hand lets the first who waits send all who do. Called with the lock.
func (l *lane) hand() {
	all := l.waiting
	l.waiting = nil
	l.relief.Stop()
	all[0].turn <- all
}

// watch looks after those who wait, should no round trip end soon. Called with
// the lock.
func (l *lane) watch() {
	if l.relief == nil {
		l.relief = time.AfterFunc(stuck, l.relieve)
		return
	}
	l.relief.Reset(stuck)
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
