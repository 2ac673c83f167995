package lease

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// Joining is one attempt to load a cached value, or to wait for the load that
// runs.
type Joining struct {
	q     *acquisition
	label string
	err   error
}

// Outcome is what a Joining came to.
type Outcome struct {
	// Leads: the lease is held, and what it names is to be loaded.
	Leads bool
	// Code is Found or Failed where a value or a failure was there already, and
	// Envelope is that.
	Code     engine.Code
	Envelope string
	// Landed is what the load that was waited for came to, and Token is the
	// load's.
	Landed *engine.Record
	Token  uint64
}

// Join begins attempts of a flight, of which several are sent in one round trip.
// Result must be called for each.
func (m *Manager) Join(ctx context.Context, attempts ...Attempt) []*Joining {
	all := make([]*Joining, len(attempts))
	var open []*acquisition
	for i, a := range attempts {
		j := &Joining{label: keys.Escape(m.cfg.Family.Name)}
		all[i] = j
		res, err := m.resource(a.Key)
		if err == nil {
			j.label = res.Label
			if !m.begin() {
				err = leasehold.ErrClosed
			}
		}
		if err != nil {
			j.err = m.fail(a.Op, j.label, err)
			continue
		}
		j.q = m.newAcquisition(a, res)
		open = append(open, j.q)
	}
	if len(open) > 1 {
		m.enterTogether(ctx, open)
	}
	return all
}

// enterTogether sends the first enters of several attempts in one pipeline. Where
// that can't be (no clock yet), each sends its own.
func (m *Manager) enterTogether(ctx context.Context, all []*acquisition) {
	now, err := m.ServerTime(ctx)
	if err != nil {
		return
	}
	calls := make([]*engine.Call, len(all))
	for i, q := range all {
		q.ahead = q.prepare(now)
		q.ahead.done = make(chan struct{})
		calls[i] = q.ahead.call
		calls[i].Node = m.eng.Node(q.res)
		calls[i].Done = q.ahead.answer
	}
	m.spawn(func() { m.eng.Send(context.WithoutCancel(ctx), calls) })
}

// Result waits for what the attempt comes to, makes into the lease where it
// leads, and returns when ctx ends.
func (j *Joining) Result(ctx context.Context, into *Lease) (Outcome, error) {
	if j.err != nil {
		return Outcome{}, j.err
	}
	defer j.q.m.done()
	e, end := j.q.run(ctx, into)
	if end != nil {
		return Outcome{}, j.q.m.fail(j.q.Op, j.label, end.errs...)
	}
	switch e.kind {
	case granted:
		return Outcome{Leads: true, Token: e.token}, j.q.started(into)
	case found:
		return Outcome{Code: e.code, Envelope: e.text}, nil
	default:
		return Outcome{Landed: e.record, Token: e.token}, nil
	}
}

// Unwatch says that nobody in this process waits for the load any more: the lease
// ends, at once or at a renewal, when nobody else does either.
func (l *Lease) Unwatch() {
	l.mu.Lock()
	if l.cond != held {
		l.mu.Unlock()
		return
	}
	l.alone = true
	l.renewAt = time.Now()
	at, slack := l.next()
	l.mu.Unlock()
	l.m.loop.Put(&l.entry, l, at, slack)
}

// GiveBack gives a lease back without a result, in the background.
func (l *Lease) GiveBack() { l.abandon(leasehold.ErrReleased) }
