// Package inbox keeps the subscriptions of a handle while any of its goroutines
// waits: channels of its own, on which other processes' releases tell it what they
// granted to it. On a single server it is one channel for all keys ([Inbox]). On a
// Cluster it is a sharded channel for each key that is awaited ([Sharded]), because a
// message on any other channel crosses the bus to every node. Nothing hangs on a
// message; an inbox only makes hand-overs quick, and says when messages may have been
// missed.
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
)

const (
	// linger keeps the subscription for the next waiter.
	linger = 500 * time.Millisecond
	// silence is how long a subscription may be quiet before it has to answer a
	// PING, and patience how long it has for that: go-redis would never notice a
	// network that swallows everything.
	silence  = 4 * time.Second
	patience = 2 * time.Second
	// pace is the shortest time from one subscription that worked to the next.
	pace = 10 * time.Millisecond
)

// Inbox is one channel's subscription, open while any key is watched.
type Inbox struct {
	subscribe func(ctx context.Context) *redis.PubSub
	message   func(payload string)
	missed    func()

	mu     sync.Mutex
	users  int
	closed bool
	since  time.Time          // since when the subscription stands; zero: it does not
	stop   context.CancelFunc // nil = not running
	timer  *time.Timer        // ends the lingering
	active sync.WaitGroup
}

// New makes an inbox. message is called for each message, missed whenever
// messages may have been missed before (on every new subscription); both on the
// inbox's goroutine.
func New(subscribe func(ctx context.Context) *redis.PubSub, message func(string), missed func()) *Inbox {
	return &Inbox{subscribe: subscribe, message: message, missed: missed}
}

// Watch opens the subscription, if it is not open, without waiting for it. It returns
// since when the subscription stands, or zero where missed is yet to be called for
// it. The key does not matter: one channel serves all.
func (b *Inbox) Watch(string) (since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users++
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if b.stop == nil && !b.closed {
		var ctx context.Context
		ctx, b.stop = context.WithCancel(context.Background())
		b.active.Go(func() { b.run(ctx) })
	}
	return b.since
}

// Unwatch ends one Watch. The subscription is closed a moment after the last.
func (b *Inbox) Unwatch(string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users--; b.users > 0 || b.stop == nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(linger, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.timer == timer { // else it was used again
			b.end()
		}
	})
	b.timer = timer
}

// Close ends the subscription for good and waits until its goroutine has ended.
func (b *Inbox) Close() {
	b.mu.Lock()
	b.closed = true
	b.end()
	b.mu.Unlock()
	b.active.Wait()
}

func (b *Inbox) end() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
	b.since = time.Time{}
}

// stands notes since when the subscription that ctx ends stands.
func (b *Inbox) stands(ctx context.Context, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() == nil { // else there may be another one, or none
		b.since = since
	}
}

// run reads one subscription after the other until ctx ends. The library's own
// reconnecting hides what was missed and never gives up on a silent connection,
// so a subscription that fails is closed and another one opened.
func (b *Inbox) run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		wait := pause(failures)
		if b.read(ctx) {
			// It worked, so the next one may: at once, unless this one was cut
			// as soon as it stood.
			failures, wait = 0, max(0, pace-time.Since(began))
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// pause is how long to wait after a subscription that did not come about: up to
// a second where none does.
func pause(failures int) time.Duration {
	d := min(10*time.Millisecond<<min(failures, 7), time.Second)
	return d/2 + rand.N(d/2)
}

// connect opens a subscription. Hooks of the client run meanwhile, which are the
// user's code: one that panics or ends its goroutine makes connect return nil, and
// ends neither the process nor the inbox.
func connect(subscribe func() *redis.PubSub) (ps *redis.PubSub) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		ps = subscribe()
	}()
	<-done
	return ps
}

// read reads one subscription until it fails, and reports whether it worked.
func (b *Inbox) read(ctx context.Context) (worked bool) {
	ps := connect(func() *redis.PubSub { return b.subscribe(ctx) })
	if ps == nil {
		return false
	}
	_ = receive(ctx, ps, func(got any, _ error) bool {
		switch m := got.(type) {
		case *redis.Subscription:
			worked = true
			b.stands(ctx, time.Now())
			b.missed()
		case *redis.Message:
			b.message(m.Payload)
			runtime.Gosched() // the waiter that was told goes first, before the next read
		}
		return got != nil // else the server refused the channel
	})
	b.stands(ctx, time.Time{})
	return worked
}

// receive passes on what a subscription receives, and the errors that the server
// answers with, until next says that it is enough, the connection fails or falls
// silent, or ctx ends. Then it has closed the subscription. It returns the error that
// ended it.
func receive(ctx context.Context, ps *redis.PubSub, next func(got any, refused error) bool) error {
	// Closing the connection is what ends a read under way.
	closed := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() { _ = ps.Close(); close(closed) })
	defer func() {
		if unhook() {
			_ = ps.Close()
		} else {
			<-closed
		}
	}()
	quiet, wait := false, silence
	for {
		got, err := ps.ReceiveTimeout(endedCtx, wait)
		var netErr net.Error
		var answer redis.Error
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil, errors.As(err, &answer):
			quiet, wait = false, silence
			if !next(got, err) {
				return err
			}
		case errors.As(err, &netErr) && netErr.Timeout() && !quiet:
			quiet, wait = true, patience
			if err := ps.Ping(endedCtx); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// ended is a ctx that has ended: it does not bound a read or a write, but keeps the
// library from connecting again by itself, under a lock that Close would wait for.
var endedCtx = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
