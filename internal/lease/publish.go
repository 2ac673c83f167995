package lease

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/engine"
)

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
	m.count()
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
		if p.Landing.Remember = 0; p.Landing.Keep > 0 {
			p.Landing.Keep = -1 // the value that is there is older
		}
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
