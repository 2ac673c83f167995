package lease

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
)

// SetOptions describe a setting.
type SetOptions struct {
	Handle string
	Limit  int // 0: back to the limit that each process has configured
	// Number is the latest that the server's time (µs) can have been when the setting was
	// called. Of two settings, the one with the higher number counts. Redis does nothing if the
	// setting arrives more than voidAfter later.
	Number int64
}

// SetReply is the reply to a set: Stored, or Overtaken by a setting that was called later, or
// neither, if it arrived too late.
type SetReply struct {
	Stored, Overtaken bool
	Now               int64 // server time, µs
	More              bool  // there are more waiters to grant to
	Grants            []Result
}

// ReadSet reads the reply to a set: code, now, more, grants.
func ReadSet(name string, v []int64) (SetReply, error) {
	if len(v) < 3 || (v[0] != 1 && v[0] != 6 && v[0] != 7) {
		return SetReply{}, call.Malformed(name, v)
	}
	var others Reply
	err := others.ReadGrants(name, v[3:])
	return SetReply{Stored: v[0] == 1, Overtaken: v[0] == 7, Now: v[1], More: others.More || v[2] == 1, Grants: others.Grants}, err
}

// Set stores a limit for res. It returns when that is confirmed, when ctx ends, or when Redis
// has not answered for too long. In the last two cases the limit may have been stored, or may
// be stored up to voidAfter later, but never over a setting of any handle that was called later.
func (m *Manager) Set(ctx context.Context, op string, res Resource, limit int) error {
	if err := ctx.Err(); err != nil {
		return m.fail(op, res.Label(), err)
	}
	open := m.count()
	defer m.done()
	if !open {
		return m.fail(op, res.Label(), leasehold.ErrClosed)
	}
	s := &setter{m: m, res: res, limit: limit, called: time.Now()}
	outcome := make(chan []error, 1)
	m.Go(func() { outcome <- s.run(ctx) })
	select {
	case errs := <-outcome:
		if errs == nil {
			return nil
		}
		return m.fail(op, res.Label(), errs...)
	case <-ctx.Done():
		return m.fail(op, res.Label(), ctx.Err(), leasehold.ErrUnavailable)
	case <-m.closing:
		return m.fail(op, res.Label(), leasehold.ErrClosed)
	}
}

// A setter is one Set under way.
type setter struct {
	m      *Manager
	res    Resource
	limit  int
	called time.Time
	number int64 // 0: the server's clock is not known yet, or was not as it seemed
}

// run sends the set until it is answered.
func (s *setter) run(ctx context.Context) []error {
	m := s.m
	for tries := 1; ; tries++ {
		now, err := m.single.Time(ctx, s.res.FirstKey())
		var r SetReply
		if err == nil {
			if s.number == 0 {
				s.number = m.settingNumber(now - time.Since(s.called).Microseconds())
			}
			r, err = s.send(ctx)
		}
		switch {
		case err == nil && (r.Stored || r.Overtaken):
			if r.More {
				m.Go(s.goOn)
			}
			if r.Stored {
				s.awaitClock(ctx, r.Now)
			}
			return nil
		case err == nil: // void: the reply has corrected the estimate of the server's clock
			s.number, err = 0, errLate
		case call.Classify(err) == call.Unknown:
			m.askSoon(s.res) // the lost reply may have carried grants to our own waiters
		}
		pause := call.Backoff(tries)
		if ctx.Err() != nil {
			return []error{ctx.Err(), leasehold.ErrUnavailable, err}
		}
		if call.Classify(err) == call.Refused && err != errLate || time.Since(s.called)+pause > patience {
			return []error{leasehold.ErrUnavailable, err}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return []error{ctx.Err(), leasehold.ErrUnavailable, err}
		case <-m.closing:
			return []error{leasehold.ErrClosed}
		}
	}
}

// settingNumber returns the number of a setting: at, or more if an earlier setting of this
// handle had as much.
func (m *Manager) settingNumber(at int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	// A number far ahead is from a time before the server's clock went back.
	if m.lastSetting >= at && m.lastSetting < at+voidAfter.Microseconds() {
		at = m.lastSetting + 1
	}
	m.lastSetting = at
	return at
}

// awaitClock waits until the server's clock, which showed now in the reply, has passed the
// number. A setting that is called after that has a higher number, in any process, so a late
// copy of this one does not undo it.
func (s *setter) awaitClock(ctx context.Context, now int64) {
	ahead := time.Duration(s.number-now) * time.Microsecond
	if ahead < 0 {
		return
	}
	select {
	case <-time.After(ahead + time.Microsecond): // at most voidAfter, or the setting would be void
	case <-ctx.Done():
	case <-s.m.closing:
	}
}

// send sends the set once.
func (s *setter) send(ctx context.Context) (SetReply, error) {
	m, sent := s.m, time.Now()
	ints, err := m.client.Do(ctx, s.res.Set(SetOptions{Handle: m.handle, Limit: s.limit, Number: s.number}))
	if err != nil {
		return SetReply{}, err
	}
	r, err := s.res.ReadSet(ints)
	if err == nil {
		m.client.Learn(s.res.FirstKey(), call.Sample{Micros: r.Now, Sent: sent, Got: time.Now()})
		m.mu.Lock()
		m.deliver(r.Grants, m.moment(sent))
		m.mu.Unlock()
	}
	return r, err
}

// goOn grants to the remaining waiters that have room under the new limit. If a call gets no
// answer, the waiters' signs of life do the same.
func (s *setter) goOn() {
	for {
		r, err := s.send(s.m.client.Brief())
		if err != nil || !r.Stored || !r.More {
			return
		}
	}
}
