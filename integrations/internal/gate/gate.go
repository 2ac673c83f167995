// Package gate is what the adapters for HTTP, gRPC and job queues have in common: a piece of
// work comes in with a key, takes permits or is turned away, and gives them back.
//
// The gate shares the semaphore's knowledge of a Redis that is away (internal/call/breaker.go),
// and adds to it: one request without an answer is enough, unless calls sent since then had one.
// Otherwise each request of an outage would find out anew, for up to several seconds.
package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/nested"
	"github.com/leasehold-go/leasehold/internal/several"
	"github.com/leasehold-go/leasehold/semaphore"
)

// patience is how long a finished answer waits for its Release.
const patience = 100 * time.Millisecond

// moment is how long work may take at the most to be released without a goroutine. That one
// would cost 10 µs, because its stack grows on the way to the network.
const moment = 10 * time.Millisecond

// Gate lets work in under the permits of one semaphore. It is safe for concurrent use.
type Gate struct {
	sem      *semaphore.Semaphore
	failOpen bool
}

// New returns a gate. adapter names the package in the error, which has each of problems.
func New(adapter string, sem *semaphore.Semaphore, failOpen bool, problems ...error) (*Gate, error) {
	if sem == nil {
		problems = append(problems, keys.Invalid("the semaphore is nil; want one of semaphore.New"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("leasehold: %s: bad configuration: %w", adapter, err)
	}
	return &Gate{sem: sem, failOpen: failOpen}, nil
}

// Pass is the permission to work. The zero Pass holds no permit. It must not be left twice.
type Pass struct {
	gate   *Gate
	lease  *semaphore.Lease
	server server
	began  time.Time          // before the lease was asked for
	cancel context.CancelFunc // of the ctx of a wait; nil: there was none
}

// Enter takes n permits of key and waits for them for up to wait; with 0 it does not wait. An
// empty key needs no permit. Errors are those of AcquireN. With failOpen, Enter lets the work
// in without permits instead of returning an error of KindUnavailable, unless ctx has ended.
func (g *Gate) Enter(ctx context.Context, key string, n int, wait time.Duration) (Pass, error) {
	return g.enter(ctx, key, n, wait, (*semaphore.Semaphore).AcquireN)
}

// Try is Enter that does not wait for permits, and for up to wait for an answer.
func (g *Gate) Try(ctx context.Context, key string, n int, wait time.Duration) (Pass, error) {
	return g.enter(ctx, key, n, wait, (*semaphore.Semaphore).TryAcquireN)
}

type take func(sem *semaphore.Semaphore, ctx context.Context, key string, n int) (*semaphore.Lease, error)

func (g *Gate) enter(ctx context.Context, key string, n int, wait time.Duration, take take) (Pass, error) {
	if key == "" {
		return Pass{}, nil
	}
	p := Pass{gate: g, server: g.serverOf(key, n), began: time.Now()}
	err := p.server.reachable(ctx)
	switch {
	case err != nil:
		return g.without(ctx, err)
	case wait <= 0:
		p.lease, err = g.sem.TryAcquireN(ctx, key, n)
	default:
		err = p.acquire(ctx, key, n, wait, take)
	}
	if err == nil {
		return p, nil
	}
	if ctx.Err() == nil { // a caller that left says nothing about a Redis that may be far away
		p.server.heard(p.began, err)
	}
	return g.without(ctx, err)
}

// without decides about work for which err says that it has no permits.
func (g *Gate) without(ctx context.Context, err error) (Pass, error) {
	if g.failOpen && ctx.Err() == nil && KindOf(err) == KindUnavailable {
		return Pass{}, nil
	}
	return Pass{}, err
}

// acquire takes permits within wait. Its ctx is also the parent of the lease's, so it
// must outlive the wait: a timer that is stopped at the grant ends it, and no deadline.
func (p *Pass) acquire(ctx context.Context, key string, n int, wait time.Duration, take take) error {
	waiting, cancel := context.WithCancel(nested.Calm{Context: ctx})
	timer := time.AfterFunc(wait, cancel)
	lease, err := take(p.gate.sem, waiting, key, n)
	switch {
	case timer.Stop() && err == nil:
		p.lease, p.cancel = lease, cancel
		return nil
	case err == nil:
		// The grant and the end of the wait came together: the lease's ctx has ended.
		p.lease, p.cancel = lease, cancel
		p.Leave()
		return fmt.Errorf("granted after the wait of %v: %w", wait, leasehold.ErrBusy)
	case waiting.Err() != nil && ctx.Err() == nil:
		if !errors.Is(err, leasehold.ErrClosed) && KindOf(err) == KindUnavailable {
			// If nothing could be sent all the time, err is that of the ctx alone. If Redis has answered others, the work
			// waited in a crowd of this process: to let it in without a permit would lift the cap when it is needed most.
			why := leasehold.ErrUnavailable
			if p.server.answersOthers(p.began, err) {
				why = leasehold.ErrBusy
			}
			err = errors.Join(why, err)
		}
		err = fmt.Errorf("no permit within %v: %w", wait, err)
	}
	cancel()
	return err
}

// Context returns the ctx that the work is to run under. This is the lease's, a child of ctx,
// if there is a lease. With failOpen it is ctx itself: under the lease's, an outage would cut
// the work that has permits after a TTL, while work that has none may go on.
func (p Pass) Context(ctx context.Context) context.Context {
	if p.lease == nil || p.gate.failOpen {
		return ctx
	}
	return p.lease.Context()
}

// Lost reports whether the lease of ctx, which Context returned, has ended before its parent.
func (p Pass) Lost(parent, ctx context.Context) bool {
	return p.lease != nil && ctx.Err() != nil && parent.Err() == nil
}

// Leave gives the permits back. It returns when Redis has confirmed, at once if Redis is known to be away, and after
// 100 ms at the latest. Otherwise a finished answer would wait for seconds when Redis hangs. The Release goes on in the
// background then, and the Close of the semaphore waits for it.
//
// The work of a moment does not pay for the goroutine: Redis answered when it began, unless the permits came from memory.
// If Redis fell silent during that moment, Leave takes as long as Release.
func (p Pass) Leave() {
	if p.lease == nil {
		return
	}
	away := p.server.away()
	if !away && !p.server.local && time.Since(p.began) < moment {
		p.release()
		return
	}
	left := make(chan struct{})
	go func() {
		p.release()
		close(left)
	}()
	if away {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-left:
	case <-timer.C:
	}
}

func (p Pass) release() {
	began := time.Now()
	p.server.heard(began, p.lease.Release())
	if p.cancel != nil {
		p.cancel()
	}
}

// server is what the semaphore's client knows of the server that has a key. The zero server is
// that of a request that can never be served: nothing is sent for it.
type server struct {
	client   *call.Client
	manager  *lease.Manager
	of       string // the key of the caller
	key      string // in Redis
	replicas bool   // they have to confirm each grant
	local    bool   // permits may come from memory
}

func (g *Gate) serverOf(key string, n int) server {
	part := several.Permits(g.sem, key, n)
	if part.Err != nil {
		return server{}
	}
	res, err := part.Manager.Resource(key)
	if err != nil {
		return server{}
	}
	return server{part.Manager.Client(), part.Manager, key, res.FirstKey(), part.Manager.NeedsReplicas(), part.Keeper != nil}
}

// reachable costs nothing unless the server is known to be away, and 100 ms at most.
func (s server) reachable(ctx context.Context) error {
	if s.client == nil {
		return nil
	}
	if err := s.client.Reachable(ctx, s.key); err != nil {
		return s.manager.Reject("acquire", s.of, leasehold.ErrUnavailable, err, ctx.Err())
	}
	return nil
}

func (s server) away() bool { return s.client != nil && s.client.Away(s.key) }

// answersOthers reports whether the server has answered a call sent since began, though the one
// with err had neither an answer nor the confirmation of replicas.
func (s server) answersOthers(began time.Time, err error) bool {
	return s.client != nil && !s.replicas && !call.HasAnswer(err) && s.client.AnsweredSince(s.key, began)
}

// heard takes note of the error of a call that began at began. A wait that ends before an answer can come from a Redis
// far away says nothing about it.
func (s server) heard(began time.Time, err error) {
	if s.client != nil && errors.Is(err, leasehold.ErrUnavailable) && s.client.Late(s.key, began) {
		s.client.Suspect(s.key, began, err)
	}
}

// Kind says why work was not let in.
type Kind int

// The kinds of errors of Enter.
const (
	// KindUnavailable: Redis did not grant or refuse, or the handle is closed, or the caller
	// left before anything was sent.
	KindUnavailable Kind = iota

	// KindRefused: there was no permit in time, the queue was full, or an operator revoked the place in it.
	KindRefused

	// KindInvalid: the request can never be served, which is a mistake in the program.
	KindInvalid
)

// KindOf returns the kind of an error of Enter.
func KindOf(err error) Kind {
	switch {
	case errors.Is(err, leasehold.ErrInvalid):
		return KindInvalid
	case errors.Is(err, leasehold.ErrBusy), errors.Is(err, leasehold.ErrQueueFull), errors.Is(err, leasehold.ErrRevoked):
		return KindRefused
	default:
		return KindUnavailable
	}
}

// RetryAfter returns after how long a new attempt is worthwhile: the estimate of a BusyError, or 1 s if err has none.
func RetryAfter(err error) time.Duration {
	if busy, ok := errors.AsType[*leasehold.BusyError](err); ok {
		return busy.RetryAfter
	}
	return time.Second
}
