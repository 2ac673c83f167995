package lease

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
)

// Adjustable is a Resource whose limit can be set while it is in use.
type Adjustable interface {
	Resource
	// Set prepares the call that stores a limit and grants to those that have room by
	// it. Sent again, it stores nothing and goes on to grant.
	Set(o SetOptions) *call.Call
	ReadSet(reply []int64) (SetReply, error)
}

// SetOptions say what to set. Handle and Seq are the owner id of the setting.
type SetOptions struct {
	Handle    string
	Seq       uint64
	Limit     int   // 0: back to what each process configured
	VoidAfter int64 // server time (µs) from which on the call does nothing
	// Earlier are settings of this handle that had no answer and may still arrive. They
	// are void once this one is stored, so that none of them undoes it.
	Earlier []EarlierSetting
}

// EarlierSetting is a setting that may arrive until then, by the server's clock.
type EarlierSetting struct {
	Seq   uint64
	Until int64 // µs
}

// EarlierWords are the earlier settings as the scripts take them.
func (o SetOptions) EarlierWords() []any {
	words := make([]any, 0, 2*len(o.Earlier))
	for _, e := range o.Earlier {
		words = append(words, e.Seq, (e.Until+999)/1000)
	}
	return words
}

// SetReply is what a set answered: Stored, Overtaken by a later setting of the handle,
// or neither, since it came too late.
type SetReply struct {
	Stored, Overtaken bool
	Now               int64 // server time, µs
	More              bool  // there are more to grant to
	Grants            []Grant
}

// ReadSet reads the reply of a set: code, now, more, grants.
func ReadSet(name string, v []int64) (SetReply, error) {
	if len(v) < 3 || (v[0] != 1 && v[0] != 6 && v[0] != 7) {
		return SetReply{}, call.Malformed(name, v)
	}
	grants, more, err := ReadGrants(name, v[3:])
	return SetReply{Stored: v[0] == 1, Overtaken: v[0] == 7, Now: v[1], More: more || v[2] == 1, Grants: grants}, err
}

// unansweredSetting is a setting of this handle that may still arrive.
type unansweredSetting struct {
	label string // of its resource
	EarlierSetting
	over time.Time // when it cannot arrive any more, by the local clock
}

// maxEarlier bounds how many settings without an answer a call names.
const maxEarlier = 250

// Set stores a limit for res. It returns when that is confirmed, or when ctx ends, or
// when Redis has not answered for too long; then the limit may have been stored, or be
// stored up to voidAfter later, but not over a later setting of this handle.
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

// setter is one Set under way.
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
		case err == nil: // it came too late; what was known of the server's clock was off
			m.settingAnswered(s.res.Label(), s.seq)
			s.seq, void, err = m.seq.Add(1), 0, errLate
		case call.Classify(err) == call.Unknown:
			m.askSoon(s.res) // grants to our own waiters may have been in the reply
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

// goOn grants to the rest of those that have room by the new limit. Where a call has no
// answer, the signs of life of the waiters do the same.
func (s *setter) goOn(void int64) {
	for {
		r, err := s.send(s.m.client.Brief(), void)
		if err != nil || !r.Stored || !r.More {
			return
		}
	}
}

// settingSent notes a setting that may arrive until it is answered.
func (m *Manager) settingSent(label string, e EarlierSetting) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settings = slices.DeleteFunc(m.settings, func(u unansweredSetting) bool { return now.After(u.over) })
	m.settings = append(m.settings, unansweredSetting{label, e, now.Add(2 * voidAfter)})
}

// settingAnswered says that a setting has its answer. A copy of it that comes later
// finds its owner id.
func (m *Manager) settingAnswered(label string, seq uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settings = slices.DeleteFunc(m.settings, func(u unansweredSetting) bool { return u.label == label && u.Seq == seq })
}

// settingsBefore are the settings for a resource before seq that have no answer.
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
