package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

const (
	probeEvery  = 250 * time.Millisecond
	probeWithin = 5 * time.Second
	maxProbes   = 16 // unanswered; each may keep a connection of the client until its ReadTimeout
)

// errAway is the error for work that comes while Redis is known to be away.
var errAway = fmt.Errorf("%w: it did not answer an earlier request, nor a probe since", leasehold.ErrUnavailable)

// outage is the knowledge that Redis did not answer. It begins with an error of a call, and
// ends with any answer. It may be wrong, because an error can have causes of one key alone, so
// it is never believed blindly: the first request that comes sends a probe.
type outage struct {
	over chan struct{} // closed when Redis has answered

	mu     sync.Mutex
	probed time.Time // when the last probe was sent
	probes int       // unanswered ones
}

// heard takes note of the outcome of a call.
func (g *Gate) heard(err error) {
	switch o := g.away.Load(); {
	case err == nil || KindOf(err) == KindRefused:
		// Several answers may come at the same time: the swap picks one to close the channel.
		if o != nil && g.away.CompareAndSwap(o, nil) {
			close(o.over)
		}
	case o == nil && errors.Is(err, leasehold.ErrUnavailable):
		g.away.CompareAndSwap(nil, &outage{over: make(chan struct{})})
	}
}

// awaitEnd sends a probe if one is due, and waits for an answer until 100 ms after the latest
// probe was sent. So a request costs at most that in an outage, a wrong belief costs one round
// trip, and the first request after the outage is served.
func (g *Gate) awaitEnd(ctx context.Context, o *outage, key string) error {
	now := time.Now()
	o.mu.Lock()
	if o.probes < maxProbes && now.Sub(o.probed) >= probeEvery {
		o.probed = now
		o.probes++
		go g.probe(o, key)
	}
	timer := time.NewTimer(o.probed.Add(patience).Sub(now))
	o.mu.Unlock()
	defer timer.Stop()
	select {
	case <-o.over:
		return nil
	case <-timer.C:
		return errAway
	case <-ctx.Done():
		return errors.Join(ctx.Err(), errAway)
	}
}

// probe asks for the state of key, which takes nothing and changes nothing. It goes on after
// the request that sent it has left: over a long way an answer takes more than 100 ms.
func (g *Gate) probe(o *outage, key string) {
	ctx, cancel := context.WithTimeout(context.Background(), probeWithin)
	defer cancel()
	_, err := g.sem.Inspect(ctx, key)
	o.mu.Lock()
	o.probes--
	o.mu.Unlock()
	g.heard(err)
}
