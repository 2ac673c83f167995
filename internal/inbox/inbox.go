// Package inbox keeps the subscriptions of a handle while any of its goroutines waits. The
// handle has channels of its own, and the scripts that other processes run publish its grants
// there. On a single server, one channel serves all keys ([Inbox]). On a Cluster, each watched
// key has a sharded channel ([Sharded]), because a message on any other channel crosses the
// bus to every node. Correctness does not depend on messages. An inbox only makes hand-overs
// quick, and says when messages may have been missed.
package inbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
)

const (
	// linger is how long a subscription without users is kept for the next waiter.
	linger = 500 * time.Millisecond
	// A subscription that was quiet for silence must answer a PING within patience. go-redis
	// would never notice a network that drops everything.
	silence  = 4 * time.Second
	patience = 2 * time.Second
	// pace is the shortest time between two subscriptions of which the first one worked.
	pace = 10 * time.Millisecond
)

// An Inbox is the subscription to one channel. It is open while any key is watched.
type Inbox struct {
	subscribe func(ctx context.Context) call.PubSub
	message   func(payload string)
	missed    func()

	mu     sync.Mutex
	users  int
	closed bool
	since  time.Time          // the time since which the subscription exists; zero: it does not
	stop   context.CancelFunc // nil: not running
	linger *time.Timer        // ends a subscription without users
	active sync.WaitGroup
}

// New makes an Inbox. It calls message for each message, and missed whenever earlier messages
// may have been missed, which is on every new subscription. Both are called on the inbox's
// goroutine.
func New(subscribe func(ctx context.Context) call.PubSub, message func(string), missed func()) *Inbox {
	b := &Inbox{subscribe: subscribe, message: message, missed: missed}
	b.linger = lingering(&b.mu, func() {
		if b.users == 0 {
			b.end()
		}
	})
	return b
}

// Watch opens the subscription, if it is not open, and does not wait for it. It returns the
// time since which the subscription exists, or the zero time if missed will still be called
// for it. The key is ignored, because one channel serves all keys.
func (b *Inbox) Watch(string) (since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users++
	if b.stop == nil && !b.closed {
		var ctx context.Context
		ctx, b.stop = context.WithCancel(context.Background())
		b.active.Go(func() { b.run(ctx, 0) })
	}
	return b.since
}

// Unwatch ends one Watch. After the last one, the subscription is closed a moment later.
func (b *Inbox) Unwatch(string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users--; b.users == 0 {
		b.linger.Reset(linger)
	}
}

// Close ends the subscription for good and waits until its goroutine has ended.
func (b *Inbox) Close() {
	b.mu.Lock()
	b.closed = true
	b.linger.Stop()
	b.end()
	b.mu.Unlock()
	b.active.Wait()
}

func (b *Inbox) end() {
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
	b.since = time.Time{}
}

// setSince notes since when the subscription of ctx exists; zero: it does not any more.
func (b *Inbox) setSince(ctx context.Context, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() == nil { // otherwise there may be another subscription, or none
		b.since = since
	}
}

// run reads one subscription after the other until ctx ends. The reconnecting of go-redis
// hides what was missed, and never gives up a silent connection. So a subscription that fails
// is closed, and run opens another one. failures is how many in a row did not work.
func (b *Inbox) run(ctx context.Context, failures int) {
	ended, worked := false, false
	defer func() {
		if worked {
			failures = 0
		}
		if !ended { // a hook of the client ended the goroutine
			b.active.Go(func() { b.run(ctx, failures+1) })
		}
	}()
	wait := time.Duration(0)
	if failures > 0 {
		wait = pause(failures)
	}
	for ; ; failures++ {
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		if ended = ctx.Err() != nil; ended {
			return
		}
		began := time.Now()
		wait, worked = pause(failures), false
		if b.read(ctx, &worked); worked {
			// It worked, so the next one may work at once. The pace applies if this one was
			// cut as soon as it existed.
			failures, wait = 0, max(0, pace-time.Since(began))
		}
	}
}

// pause returns how long to wait after a subscription that did not work: at random, and up to
// a second if several in a row fail.
func pause(failures int) time.Duration {
	d := min(10*time.Millisecond<<min(failures, 7), time.Second)
	return d/2 + rand.N(d/2)
}

// connect opens a subscription. Meanwhile hooks of the client run, which are the user's code.
// If a hook panics or ends its goroutine, connect returns nil, and neither the process nor the
// inbox ends.
func connect(subscribe func() call.PubSub) (ps call.PubSub) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		ps = subscribe()
	}()
	<-done
	return ps
}

// read reads one subscription until it fails. It sets worked once the subscription exists.
func (b *Inbox) read(ctx context.Context, worked *bool) {
	ps := connect(func() call.PubSub { return b.subscribe(ctx) })
	if ps == nil {
		return
	}
	defer b.setSince(ctx, time.Time{})
	_ = receive(ctx, ps, func(got any, _ error) bool {
		switch m := got.(type) {
		case *redis.Subscription:
			*worked = true
			b.setSince(ctx, time.Now())
			b.missed()
		case *redis.Message:
			b.message(m.Payload)
			runtime.Gosched() // let the waiter run before the next read
		}
		return got != nil // nil: the server refused the channel
	})
}

// receive passes everything that a subscription receives to next, including errors from the
// server. It stops when next returns false, the connection fails or falls silent, or ctx ends.
// It then closes the subscription, and returns the error that ended it. If hooks of the client, which
// run when go-redis connects again, panic or end the goroutine, go-redis keeps ps locked for ever: the
// subscription is then left as it is.
func receive(ctx context.Context, ps call.PubSub, next func(got any, refused error) bool) (err error) {
	// Only closing the connection ends a read that is under way.
	closed := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() { _ = ps.Close(); close(closed) })
	inHook := false
	defer func() {
		switch {
		case inHook:
			_ = recover()
			unhook()
			err = errLocked
		case unhook():
			_ = ps.Close()
		default:
			<-closed
		}
	}()
	quiet, heard, wait := false, false, silence
	for {
		inHook = true
		got, err := ps.ReceiveTimeout(call.EndedCtx, wait)
		inHook, err = false, call.Harmless(err)
		var netErr net.Error
		var answer redis.Error
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil, errors.As(err, &answer):
			quiet, wait = false, silence
			// The server answers a subscription before a PING. If the connection breaks before the subscription is
			// written, go-redis makes another one, and subscribes to nothing on it.
			_, pong := got.(*redis.Pong)
			if heard = heard || !pong; !heard {
				return errUnwritten
			}
			if !next(got, err) {
				return err
			}
		case errors.As(err, &netErr) && netErr.Timeout() && !quiet:
			quiet, wait, inHook = true, patience, true
			err := ps.Ping(call.EndedCtx)
			if inHook = false; err != nil {
				return err
			}
		default:
			return err
		}
	}
}

var (
	errLocked    = errors.New("a hook of the client broke off while it connected again")
	errUnwritten = errors.New("the subscription was not written")
)

// lingering returns a timer that calls end, with the lock mu, a moment after each Reset. By then
// there may be a new use, so end looks for one.
func lingering(mu *sync.Mutex, end func()) *time.Timer {
	timer := time.AfterFunc(linger, func() {
		mu.Lock()
		defer mu.Unlock()
		end()
	})
	timer.Stop()
	return timer
}
