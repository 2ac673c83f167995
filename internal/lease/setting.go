package lease

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
)

// An Adjustable is a Resource whose limit can be set while it is in use.
type Adjustable interface {
	Resource
	// Set prepares the call that stores a limit and grants to the waiters that now have room.
	// If it is sent again, it stores nothing and only continues to grant.
	Set(o SetOptions) *call.Call
	ReadSet(reply []int64) (SetReply, error)
}

// SetOptions describe a setting. Handle and Seq are its owner id.
type SetOptions struct {
	Handle    string
	Seq       uint64
	Limit     int   // 0: back to the limit that each process has configured
	VoidAfter int64 // server time (µs) from which on the call does nothing
	// Earlier lists the settings of this handle that had no answer and may still arrive.
	// Storing this one makes them void, so that none of them undoes it.
	Earlier []EarlierSetting
}

// An EarlierSetting may still arrive until the time Until, by the server's clock.
type EarlierSetting struct {
	Seq   uint64
	Until int64 // µs
}

// EarlierWords returns the earlier settings as arguments of the scripts.
func (o SetOptions) EarlierWords() []any {
	words := make([]any, 0, 2*len(o.Earlier))
	for _, e := range o.Earlier {
		words = append(words, e.Seq, call.MillisecondsUp(e.Until))
	}
	return words
}

// SetReply is the reply to a set: Stored, or Overtaken by a later setting of the handle, or
// neither, if it arrived too late.
type SetReply struct {
	Stored, Overtaken bool
	Now               int64 // server time, µs
	More              bool  // there are more waiters to grant to
	Grants            []Grant
}

// ReadSet reads the reply to a set: code, now, more, grants.
func ReadSet(name string, v []int64) (SetReply, error) {
	if len(v) < 3 || (v[0] != 1 && v[0] != 6 && v[0] != 7) {
		return SetReply{}, call.Malformed(name, v)
	}
	grants, more, err := ReadGrants(name, v[3:])
	return SetReply{Stored: v[0] == 1, Overtaken: v[0] == 7, Now: v[1], More: more || v[2] == 1, Grants: grants}, err
}

// An unansweredSetting is a setting of this handle that may still arrive.
type unansweredSetting struct {
	label string // the label of its resource
	EarlierSetting
	over time.Time // when it can no longer arrive, by the local clock
}

// maxEarlier bounds how many settings without an answer a call names.
const maxEarlier = 250

// Set stores a limit for res. It returns when that is confirmed, when ctx ends, or when Redis
// has not answered for too long. In the last two cases the limit may have been stored, or may
// be stored up to voidAfter later, but never over a later setting of this handle.
func (m *Manager) Set(ctx context.Context, op string, res Adjustable, limit int) error {
	if err := ctx.Err(); err != nil {
		return m.fail(op, res.Label(), err)
	}
	open := m.count()
	defer m.done()
	if !open {
		return m.fail(op, res.Label(), leasehold.ErrClosed)
	}
	s := &setter{m: m, res: res, limit: limit, seq: m.seq.Add(1)}
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
	m     *Manager
	res   Adjustable
	limit int
	seq   uint64
}

// run sends the set until it is answered.
func (s *setter) run(ctx context.Context) []error {
	m, began := s.m, time.Now()
	void := int64(0)
	for tries := 1; ; tries++ {
		now, err := m.client.Time(ctx, s.res.FirstKey())
		var r SetReply
		if err == nil {
			if void == 0 {
				void = now + voidAfter.Microseconds()
				m.settingSent(s.res.Label(), EarlierSetting{s.seq, void})
			}
			r, err = s.send(ctx, void)
		}
		switch {
		case err == nil && (r.Stored || r.Overtaken):
			m.settingAnswered(s.res.Label(), s.seq)
			if r.More {
				m.Go(func() { s.goOn(void) })
			}
			return nil
		case err == nil: // it arrived too late: the estimate of the server's clock was off
			m.settingAnswered(s.res.Label(), s.seq)
			s.seq, void, err = m.seq.Add(1), 0, errLate
		case call.Classify(err) == call.Unknown:
			m.askSoon(s.res) // the lost reply may have carried grants to our own waiters
		}
		pause := call.Backoff(tries)
		if ctx.Err() != nil {
			return []error{ctx.Err(), leasehold.ErrUnavailable, err}
		}
		if call.Classify(err) == call.Refused && err != errLate || time.Since(began)+pause > patience {
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

// send sends the set once.
func (s *setter) send(ctx context.Context, void int64) (SetReply, error) {
	m, sent := s.m, time.Now()
	ints, err := m.client.Do(ctx, s.res.Set(SetOptions{
		Handle: m.handle, Seq: s.seq, Limit: s.limit, VoidAfter: void, Earlier: m.settingsBefore(s.res.Label(), s.seq),
	}))
	if err != nil {
		return SetReply{}, err
	}
	r, err := s.res.ReadSet(ints)
	if err == nil {
		m.client.Learn(s.res.FirstKey(), call.Sample{Micros: r.Now, Sent: sent, Got: time.Now()})
		m.deliver(r.Grants, sent)
	}
	return r, err
}

// goOn grants to the remaining waiters that have room under the new limit. If a call gets no
// answer, the waiters' signs of life do the same.
func (s *setter) goOn(void int64) {
	for {
		r, err := s.send(s.m.client.Brief(), void)
		if err != nil || !r.Stored || !r.More {
			return
		}
	}
}

// settingSent lists a setting that may arrive until it is answered.
func (m *Manager) settingSent(label string, e EarlierSetting) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settings = slices.DeleteFunc(m.settings, func(u unansweredSetting) bool { return now.After(u.over) })
	m.settings = append(m.settings, unansweredSetting{label, e, now.Add(2 * voidAfter)})
}

// settingAnswered removes a setting that was answered from the list. If a copy of it arrives
// later, the script recognises its owner id.
func (m *Manager) settingAnswered(label string, seq uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settings = slices.DeleteFunc(m.settings, func(u unansweredSetting) bool { return u.label == label && u.Seq == seq })
}

// settingsBefore returns the unanswered settings for a resource that came before seq.
func (m *Manager) settingsBefore(label string, seq uint64) []EarlierSetting {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []EarlierSetting
	for _, u := range m.settings {
		if u.label == label && u.Seq < seq {
			all = append(all, u.EarlierSetting)
		}
	}
	return all[max(0, len(all)-maxEarlier):]
}
