// Package inbox keeps the one subscription that a handle has while any of its
// goroutines waits: a channel of its own, on which other processes' releases
// tell it what they granted to it. Nothing hangs on a message; the inbox only
// makes hand-overs quick, and says when messages may have been missed.
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

// Inbox is one channel's subscription, open while it is in use.
type Inbox struct {
	subscribe func(ctx context.Context) *redis.PubSub
	message   func(payload string)
	missed    func()

	mu     sync.Mutex
	users  int
	closed bool
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

// Use opens the subscription, if it is not open, without waiting for it.
func (b *Inbox) Use() {
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
}

// Unuse ends one Use. The subscription is closed a moment after the last.
func (b *Inbox) Unuse() {
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
func (b *Inbox) connect(ctx context.Context) (ps *redis.PubSub) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		ps = b.subscribe(ctx)
	}()
	<-done
	return ps
}

// read reads one subscription until it fails, and reports whether it worked.
func (b *Inbox) read(ctx context.Context) (worked bool) {
	ps := b.connect(ctx)
	if ps == nil {
		return false
	}
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
	// A ctx that has ended does not bound a read, but keeps the library from
	// connecting again by itself, under a lock that Close would wait for.
	once, ended := context.WithCancel(ctx)
	ended()
	quiet, wait := false, silence
	for {
		got, err := ps.ReceiveTimeout(once, wait)
		var netErr net.Error
		switch {
		case ctx.Err() != nil:
			return worked
		case err == nil:
			quiet, wait = false, silence
		case errors.As(err, &netErr) && netErr.Timeout() && !quiet:
			quiet, wait = true, patience
			if ps.Ping(once) != nil {
				return worked
			}
			continue
		default:
			return worked
		}
		switch m := got.(type) {
		case *redis.Subscription:
			worked = true
			b.missed()
		case *redis.Message:
			b.message(m.Payload)
			runtime.Gosched() // whom it told goes first, before the next read
		}
	}
}
