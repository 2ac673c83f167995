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
		named, err := m.cfg.Family.Resource(a.Key)
		if err == nil {
			j.label = named.Label
			if !m.begin() {
				err = leasehold.ErrClosed
			}
		}
		if err != nil {
			j.err = m.fail(a.Op, j.label, err)
			continue
		}
		j.q = m.newAcquisition(a, named)
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

// Publication is what a load came to, to be published under its lease.
type Publication struct {
	Lease   *Lease
	Landing engine.Landing

	// What became of it. Err: it is not known, or was refused.
	State engine.LandState
	At    int64 // server, µs
	Err   error
	// Unstored is why the server would not store it; it was handed out.
	Unstored error
}

// Publish publishes results of loads, in one round trip, and gives their leases
// back. It tries for as long as within says, and longer in the background where
// no more than giving back is left to do.
func (m *Manager) Publish(all []*Publication, within time.Duration) {
	m.mu.Lock()
	m.running++
	m.mu.Unlock()
	defer m.done()
	bound := time.NewTimer(within)
	defer bound.Stop()
	var open []*Publication
	for _, p := range all {
		if err := p.Lease.ended("publish"); err != nil {
			p.State, p.Err = engine.LandLost, nil
			p.Lease.abandon(leasehold.ErrReleased)
			continue
		}
		p.Err = errNoAnswer
		open = append(open, p)
	}
	for n := 1; len(open) > 0; n++ {
		replies := m.sendLandings(open)
		var again []*Publication
		for range open {
			select {
			case r := <-replies:
				if r.p.answered(r.reply, r.err) {
					again = append(again, r.p)
				}
			case <-bound.C:
				for _, p := range open {
					p.Lease.abandon(leasehold.ErrReleased)
				}
				return
			}
		}
		if open = again; len(open) == 0 {
			return
		}
		pause := time.NewTimer(backoff(n))
		select {
		case <-pause.C:
		case <-bound.C:
			pause.Stop()
			for _, p := range open {
				p.Lease.abandon(leasehold.ErrReleased)
			}
			return
		}
	}
}

type landReply struct {
	p     *Publication
	reply engine.LandReply
	err   error
}

func (m *Manager) sendLandings(open []*Publication) <-chan landReply {
	replies := make(chan landReply, len(open))
	calls := make([]*engine.Call, len(open))
	for i, p := range open {
		l := p.Lease
		calls[i] = l.req.Land(m.eng.Node(l.req.Resource), l.token, l.stray, p.Landing)
		calls[i].Done = func(v []int64, err error) {
			var r engine.LandReply
			if err == nil {
				r, err = engine.ParseLand(v)
			}
			if err == nil && r.Left > 0 {
				m.tellOthers(l, p.Landing)
			}
			replies <- landReply{p, r, err}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), engine.CallBound)
	m.spawn(func() { defer cancel(); m.eng.Send(ctx, calls) })
	return replies
}

// answered takes the outcome of a publication, and says whether to send it again.
func (p *Publication) answered(r engine.LandReply, err error) (again bool) {
	switch {
	case err == nil:
		p.State, p.At, p.Err = r.State, r.Now, nil
		p.Lease.end(leasehold.ErrReleased)
		return false
	case engine.Classify(err) != engine.Refused:
		p.Err = err
		return true
	case p.Unstored == nil && (p.Landing.Keep > 0 || p.Landing.Remember > 0):
		// Out of memory, say: storing is the first thing that it does, so
		// nothing is done yet.
		p.Unstored, p.Err = err, err
		p.Landing.Keep, p.Landing.Remember = 0, 0
		return true
	default:
		p.Err = err
		p.Lease.abandon(leasehold.ErrReleased)
		return false
	}
}

// tellOthers sends a publication again that has more waiters than one call tells.
func (m *Manager) tellOthers(l *Lease, landing engine.Landing) {
	m.spawn(func() {
		ctx, cancel := context.WithTimeout(context.Background(), engine.CallBound)
		defer cancel()
		for {
			v, err := m.eng.Do(ctx, l.req.Land("", l.token, 0, landing))
			if err != nil {
				return // they ask by themselves
			}
			if r, err := engine.ParseLand(v); err != nil || r.Left == 0 {
				return
			}
		}
	})
}

// clockAge is how old a sample of the server's clock may get before another one
// is taken: clocks run at slightly different rates.
const clockAge = 30 * time.Second

// ServerTime is the server's clock now, in µs, as the last reply showed it; it is
// asked for where there was none yet, and in the background where the last one
// was long ago.
func (m *Manager) ServerTime(ctx context.Context) (int64, error) {
	if s := m.clock.Load(); s != nil {
		now := time.Now()
		if now.Sub(s.got) > clockAge && m.asking.CompareAndSwap(false, true) && m.begin() {
			go func() {
				defer m.done()
				if us, err := m.eng.Time(context.Background()); err == nil {
					m.learn(us, now, time.Now())
				}
				m.asking.Store(false)
			}()
		}
		return s.latest(now), nil
	}
	sent := time.Now()
	replies := make(chan reply[int64], 1)
	m.spawn(func() {
		us, err := m.eng.Time(ctx)
		replies <- reply[int64]{us, err}
	})
	select {
	case r := <-replies:
		if r.err != nil {
			return 0, r.err
		}
		return m.learn(r.val, sent, time.Now()).latest(time.Now()), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// GiveBack gives a lease back without a result, in the background.
func (l *Lease) GiveBack() { l.abandon(leasehold.ErrReleased) }
