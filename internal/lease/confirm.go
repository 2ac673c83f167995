package lease

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// Replicas: if a Config asks for them, a grant counts only after that many of the primary's
// replicas have confirmed it, and only a confirmed renewal moves the deadline. The enter and
// the renewals of such a handle ask for the confirmation themselves (call.Confirm). A grant
// that arrived in another way, by a message or in the reply to another call, has no
// confirmation: confirmGrant renews it before Acquire returns.

// confirm checks Replicas and ReplicaWait and returns the Confirm for the handle's calls, which
// is zero without replicas. client is nil if the Config has no valid client.
func (c Config) confirm(client *call.Client) (none call.Confirm, errs []error) {
	if c.Replicas < 0 {
		errs = append(errs, keys.Bad("Replicas", "is %d; want 0 (none) or more", c.Replicas))
	}
	term := max(MinTTL, c.TTL)
	if c.MaxHold > 0 {
		term = TermWithin(term, c.MaxHold)
	}
	longest, of := term/4, "a quarter of the TTL"
	if c.MaxHold > 0 {
		of += ", or of MaxHold"
	}
	// How long the client waits for an answer matters only if there are replicas.
	if client != nil && c.Replicas > 0 && client.LongestWait() < longest {
		longest, of = client.LongestWait(), "three quarters of the client's ReadTimeout"
	}
	if c.ReplicaWait != 0 && (c.ReplicaWait < time.Millisecond || c.ReplicaWait > longest) {
		errs = append(errs, keys.Bad("ReplicaWait", "is %v; want 1ms to %v (%s), or 0 for %v or less",
			c.ReplicaWait, longest, of, DefaultReplicaWait))
	}
	if len(errs) > 0 || c.Replicas == 0 {
		return none, errs
	}
	wait := c.ReplicaWait
	if wait == 0 {
		wait = max(time.Millisecond, min(DefaultReplicaWait, longest))
	}
	return call.Confirm{Replicas: c.Replicas, Wait: wait, TTL: term}, nil
}

// replicated reports whether replicas must confirm the grants of the handle.
func (m *Manager) replicated() bool { return m.confirm != call.Confirm{} }

// requireConfirmed returns the grant v, which is the outcome of c. If too few replicas confirmed it,
// the grant is given back instead.
func (w *waiter) requireConfirmed(v Verdict, c *call.Call) (Verdict, error) {
	if err := c.Unconfirmed(); err != nil {
		w.lateTold = true // the error already tells of this grant, so it is not reported as a late one
		w.abandon()
		return Verdict{}, w.fail(leasehold.ErrUnavailable, err)
	}
	v.Confirmed = true
	return v, nil
}

// confirmGrant makes replicas confirm v, a grant without a confirmation. It repeats a renewal
// until it is answered. The Verdict has the deadline of that renewal, or is Gone if the grant
// had ended. If the wait ends in any other way, the grant is given back.
func (w *waiter) confirmGrant(ctx context.Context, v Verdict) (Verdict, error) {
	began := time.Now()
	for tries := 1; ; tries++ {
		e := w.newConfirmCall(v.Deadline)
		w.m.Go(func() {
			defer close(e.done)
			e.send(ctx)
		})
		if ev := nextButWoken(ctx, w, e.done); ev != answered {
			return w.end(ctx, ev, errNoAnswer)
		}
		switch {
		case e.err == nil && e.term == 0:
			return Verdict{Code: Gone}, w.restart(ctx, errGone)
		case e.err == nil:
			v.Deadline = deadline(e.call.Sent, e.term)
			return w.requireConfirmed(v, e.call)
		}
		pause := call.Backoff(tries)
		if call.Classify(e.err) == call.Refused || time.Since(began)+pause > patience {
			w.abandon()
			return Verdict{}, w.fail(leasehold.ErrUnavailable, e.err)
		}
		timer := time.NewTimer(pause)
		ev := nextButWoken(ctx, w, timer.C)
		timer.Stop()
		if ev != answered {
			return w.end(ctx, ev, e.err)
		}
	}
}

// A confirmCall is the renewal that has a grant confirmed, on its way. Its goroutine may outlive the attempt.
type confirmCall struct {
	m    *Manager
	res  Resource
	req  Request
	call *call.Call
	done chan struct{}
	term time.Duration
	err  error
}

func (w *waiter) newConfirmCall(deadline time.Time) *confirmCall {
	c := w.req.Renew(w.m.cfg.TTL, w.enterMayArriveUntil)
	c.Rank, c.By, c.Confirm = call.KeepsLease, deadline, w.m.confirm
	return &confirmCall{
		m: w.m, res: w.res, req: w.req, call: c, done: make(chan struct{}),
		err: errNoAnswer, // stays if a hook ends the goroutine
	}
}

func (e *confirmCall) send(ctx context.Context) {
	var ints []int64
	var r RenewReply
	if ints, e.err = e.m.client.Do(ctx, e.call); e.err == nil {
		r, e.err = e.req.ReadRenew(ints)
	}
	e.term = r.Term
	e.m.reached(e.res, e.err)
}

// nextButWoken is next for a waiter that has its verdict. It ignores further verdicts, because
// they say nothing new.
func nextButWoken[T any](ctx context.Context, w *waiter, ready <-chan T) event {
	for {
		if ev := next(ctx, w, ready); ev != woken {
			return ev
		}
	}
}
