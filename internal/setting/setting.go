// Package setting stores limits that are set at run time.
package setting

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

const (
	// voidAfter is how long a setting may take to reach the server. A later copy does nothing.
	voidAfter = 5 * time.Second
	// patience is how long a call without an answer is repeated.
	patience = 3 * time.Second
	// longest bounds the duration of one Set. It is longer than the last call may take.
	longest = time.Minute
)

// A Reply is the reply to a set: Stored, or Overtaken by a setting that was called later, or
// neither, if it arrived too late.
type Reply struct {
	Stored, Overtaken bool
	Now               int64 // server time, µs
	More              bool  // there are more waiters to grant to
	Grants            []protocol.Result
}

// Read reads the reply to a set: code, now, more, grants.
func Read(v []int64) (Reply, error) {
	if len(v) < 3 || (v[0] != 1 && v[0] != 6 && v[0] != 7) {
		return Reply{}, call.Malformed("set limit", v)
	}
	var others protocol.Reply
	err := others.ReadGrants("set limit", v[3:])
	return Reply{Stored: v[0] == 1, Overtaken: v[0] == 7, Now: v[1], More: others.More || v[2] == 1, Grants: others.Grants}, err
}

// A Setter stores the limits that one handle sets.
type Setter struct {
	M *lease.Manager

	mu         sync.Mutex
	last       int64     // the highest number of a setting: see protocol.SetOptions
	lastCalled time.Time // when that setting was called
}

// Set stores a limit for res. It returns when that is confirmed, when ctx ends, or when Redis
// has not answered for too long. In the last two cases the limit may have been stored, or may
// be stored up to voidAfter later, but never over a setting of any handle that was called later.
func (s *Setter) Set(ctx context.Context, op string, res protocol.Resource, limit int) error {
	one := &setting{Setter: s, res: res, limit: limit, called: time.Now()}
	return s.M.RunOn(ctx, op, res, longest, one.run)
}

// A setting is one Set under way.
type setting struct {
	*Setter
	res    protocol.Resource
	limit  int
	called time.Time
	number int64 // 0: the server's clock is not known yet, or was not as it seemed
}

var errLate = errors.New("it came too late to count")

// run sends the setting until it is answered.
func (s *setting) run(ctx context.Context) error {
	for tries := 1; ; tries++ {
		now, err := s.M.Client().Time(ctx, s.res.FirstKey())
		var r Reply
		if err == nil {
			if s.number == 0 {
				s.number = s.next(s.called, now-time.Since(s.called).Microseconds())
			}
			r, err = s.send(ctx)
		}
		switch {
		case err == nil && (r.Stored || r.Overtaken):
			if r.More {
				s.M.Go(s.goOn)
			}
			if r.Stored {
				s.awaitClock(ctx, r.Now)
			}
			return nil
		case err == nil: // void: the reply has corrected the estimate of the server's clock
			s.number, err = 0, errLate
		case call.Classify(err) == call.Unknown:
			s.M.ReplyLost(s.res) // it may have carried grants to our own waiters
		}
		pause := call.Backoff(tries)
		if ctx.Err() != nil || call.Classify(err) == call.Refused && err != errLate || time.Since(s.called)+pause > patience {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		case <-s.M.Closing():
			return leasehold.ErrClosed
		}
	}
}

// next returns the number of a setting that was called at a time of this process, when the server's clock showed at at
// the latest. It is more than at if a setting that was called before has as much, and less if one that was called after
// had its number first: both may have waited for the server's clock.
func (s *Setter) next(called time.Time, at int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	near := s.last < at+voidAfter.Microseconds() // a number far ahead is from a time before the server's clock went back
	if near && called.Before(s.lastCalled) {
		return min(at, s.last-1)
	}
	if near && s.last >= at {
		at = s.last + 1
	}
	s.last, s.lastCalled = at, called
	return at
}

// awaitClock waits until the server's clock, which showed now in the reply, has passed the
// number. A setting that is called after that has a higher number, in any process, so a late
// copy of this one does not undo it.
func (s *setting) awaitClock(ctx context.Context, now int64) {
	ahead := time.Duration(s.number-now) * time.Microsecond
	if ahead < 0 {
		return
	}
	select {
	case <-time.After(ahead + time.Microsecond): // at most voidAfter, or the setting would be void
	case <-ctx.Done():
	case <-s.M.Closing():
	}
}

// send sends the setting once.
func (s *setting) send(ctx context.Context) (Reply, error) {
	client, sent := s.M.Client(), time.Now()
	ints, err := client.Do(ctx, s.res.Set(protocol.SetOptions{Handle: s.M.Handle(), Limit: s.limit, Number: s.number}))
	if err != nil {
		return Reply{}, err
	}
	r, err := Read(ints)
	if err == nil {
		client.Learn(s.res.FirstKey(), call.Sample{Micros: r.Now, Sent: sent, Got: time.Now()})
		s.M.Granted(r.Grants, sent)
	}
	return r, err
}

// goOn grants to the remaining waiters that have room under the new limit. If a call gets no
// answer, the waiters' signs of life do the same.
func (s *setting) goOn() {
	for {
		r, err := s.send(s.M.Client().Brief())
		if err != nil || !r.Stored || !r.More {
			return
		}
	}
}
