package quorum

import (
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
)

// onReply takes the outcome of a call to one server.
func (v *voter) onReply(fl *flight, reply []int64, err error) {
	server := v.f.servers[fl.seat]
	got := time.Now()
	if err == nil && len(reply) > 1 {
		server.client.Learn(v.res.FirstKey(), call.Sample{Micros: reply[1], Sent: fl.c.Sent, Got: got})
		if len(fl.c.Text) > 0 {
			server.meet(fl.c.Text[0])
		}
	}
	if err == nil && len(reply) < 4+call.Flag(fl.kind != yields) {
		err = call.Malformed("quorum", reply)
	}
	if err == nil {
		err = server.twice()
	}
	v.decide(func(t *todo) {
		if fl.try == v.try && v.phase != resting {
			v.apply(fl, reply, err, t)
			v.step(t)
		}
	})
}

// apply notes what a reply says of a seat. Called with the lock.
func (v *voter) apply(fl *flight, reply []int64, err error, t *todo) {
	s := &v.seats[fl.seat]
	s.flights = slices.DeleteFunc(s.flights, func(other *flight) bool { return other == fl })
	latest := fl.number == s.sent
	if latest {
		s.asked, s.raising = time.Time{}, 0
	}
	mayCome := fl.c.Copied() || err != nil && !surelyNotRun(err)
	if mayCome && fl.kind != renews {
		s.copies = max(s.copies, fl.void)
	}
	if isRevoked(err) {
		v.revoked = err
	}
	if v.phase == leaving || fl.number < s.applied || fl.kind != yields && fl.number <= s.floor {
		// Another call was sent since, whose reply counts.
		if v.phase == wanting && err == nil && reply[0] == 1 && s.asked.IsZero() {
			v.ask(fl.seat, t) // this call may have run after the yield, and have got the vote again
		}
		return
	}
	s.applied, s.last = fl.number, fl.kind
	if fl.kind == yields && mayCome {
		s.notBefore = max(s.notBefore, fl.void)
	}
	again := s.again && latest
	switch {
	case err != nil:
		s.err = err
		if fl.kind == yields || s.stand != held || fl.kind == asks && isRevoked(err) {
			// A vote that is held stays held until its time is over.
			s.stand = failed
		}
		v.note(fl.seat, fl.number)
		if again || fl.kind == yields {
			v.ask(fl.seat, t)
		}
		return
	case fl.kind == yields:
		v.onYielded(fl, reply, t)
		v.note(fl.seat, fl.number)
	default:
		v.onEntered(fl, reply, t)
	}
	if again && v.phase == wanting {
		v.ask(fl.seat, t)
	}
}

// surelyNotRun reports whether err says that the call has not run, and never will.
func surelyNotRun(err error) bool { return call.Classify(err) != call.Unknown }

// onYielded takes the answer to a yield. Called with the lock.
func (v *voter) onYielded(fl *flight, reply []int64, t *todo) {
	s := &v.seats[fl.seat]
	switch {
	case reply[0] == 2:
		s.stand = queued
	case reply[0] == 1 && reply[1] >= s.notBefore:
		v.hold(fl.seat, fl.c.Sent, reply[2], reply[3])
	default:
		s.stand = gone
		v.ask(fl.seat, t)
	}
}

// hold notes that a server has given its vote. Called with the lock.
func (v *voter) hold(i int, sent time.Time, ms, fence int64) {
	s := &v.seats[i]
	if s.stand != held {
		s.until = time.Time{}
	}
	if until := sent.Add(call.Duration(ms)); until.After(s.until) {
		s.until = until // no answer shortens a vote
	}
	s.stand, s.fence, s.err = held, uint64(fence), nil
}

var errTombstone = errors.New("has an old mark of this request")

// onEntered takes the answer to an enter. Called with the lock.
func (v *voter) onEntered(fl *flight, reply []int64, t *todo) {
	i := fl.seat
	s := &v.seats[i]
	if reply[0] != 6 {
		s.voids = 0
	}
	switch reply[0] {
	case 1:
		if reply[1] < s.notBefore {
			// A copy of the yield may still give this vote away.
			s.stand = yielding
			v.wakeAt(time.Now().Add(time.Duration(s.notBefore-reply[1])*time.Microsecond + time.Millisecond))
			break
		}
		v.hold(i, fl.c.Sent, reply[2], reply[3])
		s.earlier = reply[4] == 1
	case 2, 3, 5:
		s.stand = [...]stand{2: queued, 3: busy, 5: full}[reply[0]]
		s.state = [3]int64{reply[2], reply[3], reply[4]}
	case 0:
		s.stand = gone
		if v.phase == holding && fl.kind == renews {
			v.heal(i, v.terms.TTL, t)
			return
		}
	case 6:
		// The estimate of the server's clock was off. The reply has corrected it.
		if s.voids++; s.voids < maxVoids && fl.kind == asks {
			v.sendEnter(i, asks, v.terms.TTL, 0, t)
			return
		}
		s.stand, s.err = failed, errNotYet
	case 7:
		s.stand, s.err = failed, errTombstone
	case 9:
		left := call.Duration(reply[3])
		if s.err = (&abstention{left}); v.phase != holding || s.stand != held {
			s.stand = failed
		} // else nobody gets this vote before its time is over
		if wait := v.f.remind(i, reply[2], left, reply[4] == 1); wait {
			return // the voter hears what came of it
		}
	default:
		s.stand, s.err = failed, call.Malformed("enter", reply)
	}
	v.note(i, fl.number)
}

const maxVoids = 4

// onMemory is called when it is known whether a server that had forgotten its votes may vote again.
func (v *voter) onMemory(i int, votes bool) {
	v.decide(func(t *todo) {
		s := &v.seats[i]
		if s.stand != failed && (s.stand != held || !isAbstention(s.err)) {
			return
		}
		switch {
		case votes && v.phase == wanting:
			v.ask(i, t)
		case votes && v.phase == holding:
			v.heal(i, v.terms.TTL, t)
		default:
			v.note(i, notAsked)
			v.step(t)
		}
	})
}
