package call

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A breaker knows whether a server answers. Each link has one for each server. A breaker stops
// no call: callers that would rather fail than wait ask it (Reachable).
//
// Each round trip tells it its outcome. Any reply closes it, also an error. It opens when a connection is refused, or
// when the server has been silent for silenceBound. Silence lasts from the sending of the first call without an answer
// to the end of the last such call, so one lost packet and an idle minute are no silence. It never begins before the
// last answered call was sent, so neither is a connection that hangs among others that work.
//
// While it is open, callers send probes. So a breaker that opens by mistake costs one round
// trip, and the first call after the server's return succeeds.
type breaker struct {
	link *link
	born time.Time

	// answered is when the latest call with an answer was sent, as a time since born. troubled
	// says that an answer changes something below. They are atomic because each hit uses them.
	answered atomic.Int64
	troubled atomic.Bool

	mu          sync.Mutex    // guards the fields below
	silentSince time.Time     // zero: no call has been without an answer since the last answer
	opened      chan struct{} // closed when the breaker closes; nil: the breaker is closed
	why         error         // of the last call without an answer
	probed      time.Time     // when the latest probe began
	probes      int           // how many probes have no outcome yet
	watchers    map[*watcher]struct{}
}

// A watcher is a ctx that ends when the server goes away.
type watcher struct {
	probe  func() // sends a probe
	cancel context.CancelFunc
}

const (
	// silenceBound is how long a server may be silent before the breaker opens.
	silenceBound = 3 * time.Second
	// probeEvery is the time from the beginning of one probe to that of the next.
	probeEvery = 250 * time.Millisecond
	// probePatience is how long callers wait for a probe.
	probePatience = 100 * time.Millisecond
	// maxProbes bounds the probes without an outcome. A pool may be full of connections that
	// hang. Each of them costs a probe, so fewer probes would find a working connection late.
	maxProbes = 16
)

// Reachable returns nil unless the server that has key is known not to answer. Then Reachable waits for a probe until
// 100 ms after its start, or until ctx ends, and returns an error if the probe has no answer. Callers that wait for
// their turn must not ask: a short outage would end their wait.
func (c *Client) Reachable(ctx context.Context, key string) error {
	if c.troubles.Load() == 0 {
		return nil
	}
	b := c.serverOf(key).breaker
	b.mu.Lock()
	opened, why, now := b.opened, b.why, time.Now()
	if opened == nil {
		b.mu.Unlock()
		return nil
	}
	due := b.probeIsDue()
	left := b.probed.Add(probePatience).Sub(now)
	b.mu.Unlock()
	if due {
		c.spawn(func() { b.probe(key) })
	}
	if left > 0 {
		patience := time.NewTimer(left)
		defer patience.Stop()
		select {
		case <-opened:
			return nil
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	return NotSent(fmt.Errorf("%w: %w", errAway, why))
}

// Away reports whether the server that has key is known not to answer.
func (c *link) Away(key string) bool {
	if c.troubles.Load() == 0 {
		return false
	}
	b := c.serverOf(key).breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened != nil
}

// Trouble returns why a call had no answer from the server that has key, nil if the server has answered since.
func (c *link) Trouble(key string) error {
	if c.troubles.Load() == 0 {
		return nil
	}
	b := c.serverOf(key).breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.why
}

// AnsweredSince reports whether the server that has key has answered a call that was sent after began.
func (c *link) AnsweredSince(key string, began time.Time) bool {
	return c.serverOf(key).breaker.answeredSince(began)
}

// Late reports whether a call for key that began at began has taken twice as long as the quickest round trip of late.
func (c *link) Late(key string, began time.Time) bool {
	q := c.serverOf(key).queue
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Since(began) >= 2*min(q.pace.shortest[0], q.pace.shortest[1])
}

// Heard notes the outcome of a call for key that began at began and that another package sent.
func (c *link) Heard(key string, began time.Time, err error) {
	c.serverOf(key).breaker.outcome(began, err)
}

// Suspect opens the breaker of the server that has key, for a caller that would rather be wrong than wait for
// silenceBound: err says that a call of it, which began at began, had no answer. It does not if the server has answered
// a call sent since then: the caller may have waited in a crowd of this process, and the breaker would stop all others.
func (c *link) Suspect(key string, began time.Time, err error) {
	b := c.serverOf(key).breaker
	b.mu.Lock()
	if !b.troubled.Swap(true) {
		b.link.troubles.Add(1)
	}
	var probe func()
	if b.opened == nil && !b.answeredSince(began) {
		b.why = Cause(err)
		probe = b.open()
	}
	b.mu.Unlock()
	if probe != nil {
		probe()
	}
}

// outcome notes the outcome of a call.
func (b *breaker) outcome(began time.Time, err error) {
	switch {
	case HasAnswer(err):
		b.onAnswer(began)
	case ClientClosed(err), errors.Is(err, errWithdrawn), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		// Nothing was sent, for a reason that lies in this process.
	default:
		b.onNoAnswer(began, err)
	}
}

// onAnswer notes an answer. It and onNoAnswer each write one of the two atomic fields before they read the other. So if
// both run at the same time, onNoAnswer knows of the answer, or onAnswer goes on to close the breaker.
func (b *breaker) onAnswer(began time.Time) {
	at := int64(began.Sub(b.born))
	for last := b.answered.Load(); last < at && !b.answered.CompareAndSwap(last, at); last = b.answered.Load() {
	}
	if !b.troubled.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.troubled.Swap(false) {
		b.link.troubles.Add(-1)
	}
	if b.silentSince, b.why = (time.Time{}), nil; b.opened != nil {
		close(b.opened)
		b.opened = nil
	}
}

func (b *breaker) onNoAnswer(began time.Time, err error) {
	var probe func()
	b.mu.Lock()
	defer func() {
		b.mu.Unlock()
		if probe != nil {
			probe()
		}
	}()
	if !b.troubled.Swap(true) {
		b.link.troubles.Add(1)
	}
	latest := b.born.Add(time.Duration(b.answered.Load()))
	if b.silentSince.IsZero() || began.Before(b.silentSince) {
		b.silentSince = began
	}
	if latest.After(b.silentSince) {
		b.silentSince = latest
	}
	b.why = Cause(err)
	silent := time.Since(b.silentSince) >= silenceBound
	if b.opened == nil && (silent || refused(err) && !b.answeredSince(began)) {
		probe = b.open()
	}
}

// Cause returns err as other callers are told it. They must not take the ctx of that call for their own.
func Cause(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return errCut
	}
	return err
}

// answeredSince reports whether the server has answered a call that was sent after began.
func (b *breaker) answeredSince(began time.Time) bool {
	return time.Duration(b.answered.Load()) > began.Sub(b.born)
}

// open opens the breaker, and returns the function that sends a probe, if one is due. Called with the lock.
func (b *breaker) open() (probe func()) {
	b.opened = make(chan struct{})
	return b.endWatched()
}

// WhileReachable returns a ctx that ends with ctx, or when the server that has key has been
// known not to answer for probePatience. stop must be called.
func (c *Client) WhileReachable(ctx context.Context, key string) (_ context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	b := c.serverOf(key).breaker
	w := &watcher{func() { c.spawn(func() { b.probe(key) }) }, cancel}
	var probe func()
	b.mu.Lock()
	b.watchers[w] = struct{}{}
	if b.opened != nil {
		probe = b.endWatched()
	}
	b.mu.Unlock()
	if probe != nil {
		probe()
	}
	return ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, w)
		cancel()
	}
}

// endWatched ends what is watched, unless a probe is answered in time. It returns the function
// that sends the probe, if one is due. Called with the lock.
func (b *breaker) endWatched() (probe func()) {
	opened := b.opened
	for w := range b.watchers {
		if b.probeIsDue() {
			probe = w.probe
		}
		time.AfterFunc(probePatience, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			for w := range b.watchers {
				if b.opened == opened {
					w.cancel()
				}
			}
		})
		break
	}
	return probe
}

var (
	// errAway says that a call was not sent because its server does not answer.
	errAway = errors.New("redis is out of reach")

	errCut = errors.New("a call had no answer in the time that it had")
)

// refused reports whether err says that no connection could be made, at once and not because of a ctx.
func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && !op.Timeout() && !errors.Is(err, context.Canceled)
}

// probeIsDue reports whether the caller is to send a probe now. Called with the lock.
func (b *breaker) probeIsDue() bool {
	now := time.Now()
	if now.Sub(b.probed) < probeEvery || b.probes == maxProbes {
		return false
	}
	b.probed = now
	b.probes++
	return true
}

// probe asks the server for a key. The outcome reaches the breaker as that of any other call.
func (b *breaker) probe(key string) {
	defer func() { // also if a hook ends this goroutine
		b.mu.Lock()
		defer b.mu.Unlock()
		b.probes--
	}()
	_, _ = b.link.read(b.link.Brief(), key)
}
