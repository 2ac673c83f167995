package quorum

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/life"
)

// A round is a joint call of internal/lease that has no outcome yet.
type round struct {
	kind    roundKind
	sent    time.Time
	term    time.Duration
	pending []bool // servers that have not answered in this round
	before  []int  // of renewals, by server: the last call before it; the reply to that says nothing of it
	timer   *time.Timer
	longer  bool // it has waited longer for servers that abstain
	end     func(o outcome)
}

type roundKind uint8

const (
	entering roundKind = iota
	asking
	renewing
	probing // a renewal that changes nothing
)

type outcome struct {
	code     life.Code
	deadline time.Time // of Granted
	err      error
}

// open begins a round. Called with the lock.
func (v *voter) open(k roundKind, sent time.Time, end func(outcome)) *round {
	r := &round{kind: k, sent: sent, pending: make([]bool, len(v.seats)), end: end}
	for i := range r.pending {
		r.pending[i] = true
		if k == renewing || k == probing {
			r.before = append(r.before, v.seats[i].sent)
		}
	}
	v.rounds = append(v.rounds, r)
	v.f.active.Add(1)
	r.timer = time.AfterFunc(late, func() {
		defer v.f.active.Done()
		v.expire(r)
	})
	return r
}

// expire ends the wait of a round for servers that have not answered.
func (v *voter) expire(r *round) {
	v.decide(func(t *todo) {
		switch {
		case !slices.Contains(v.rounds, r):
		case r.kind == entering && !r.longer && v.abstains(r): // servers that have never voted need more round trips to begin
			r.longer = true
			v.f.active.Add(1)
			r.timer.Reset(late)
		default:
			for i, pending := range r.pending {
				if r.pending[i] = false; pending && v.seats[i].stand != held {
					v.seats[i].stand = failed
					v.seats[i].err = cmp.Or(v.seats[i].err, errNotYet)
				}
			}
			v.step(t)
			if slices.Contains(v.rounds, r) { // the votes are there, but not with one token yet
				o := outcome{code: life.Queued}
				if !v.waits {
					o.err = &noMajority{have: 0, need: v.f.need, cause: errNotYet}
					v.abandon(t)
				}
				v.close(r, o, t)
			}
		}
	})
}

// abstains reports whether a round waits for a server that abstained, and may vote by now. Called with the lock.
func (v *voter) abstains(r *round) bool {
	for i, pending := range r.pending {
		if pending && isAbstention(v.seats[i].err) {
			return true
		}
	}
	return false
}

// note notes that a server has answered a call, or will not be asked. Called with the lock.
func (v *voter) note(i, number int) {
	for _, r := range v.rounds {
		if r.before == nil || number > r.before[i] {
			r.pending[i] = false
		}
	}
}

const notAsked = math.MaxInt // in place of the number of a call

// close ends a round. Called with the lock.
func (v *voter) close(r *round, o outcome, t *todo) {
	v.rounds = slices.DeleteFunc(v.rounds, func(other *round) bool { return other == r })
	if r.timer.Stop() {
		v.f.active.Done()
	}
	t.add(func() { r.end(o) })
}

// step decides what follows from what is known. Called with the lock.
func (v *voter) step(t *todo) {
	if v.phase == wanting && v.revoked == nil {
		v.count(t)
	}
	for i := range v.seats {
		// An earlier waiter keeps its vote until it hears of the majority. The server hints when it has the vote back.
		s := &v.seats[i]
		taken := s.stand == queued || s.stand == busy || s.stand == full
		if taken && v.phase == holding && s.asked.IsZero() && s.last != heals {
			v.heal(i, v.terms.TTL, t)
		}
	}
	for _, r := range slices.Clone(v.rounds) {
		if o, over := v.judge(r); over {
			v.close(r, o, t)
			if v.phase == wanting && (o.err != nil || r.kind == entering && o.code != life.Queued) {
				v.abandon(t)
			}
		}
	}
	if v.phase == wanting {
		v.keep(t)
	}
}

// count counts votes, and makes the voter the holder once a majority has given its vote with one and
// the same token. A server whose fence is lower is asked to raise it.
//
// Two majorities share a server. There, the vote of the second was given after that of the first
// had ended, with a greater fence. So the token of the second, which is that fence, is greater. The
// servers whose fence is higher are not counted: an earlier holder may have had a higher token than
// this one there, and only there.
func (v *voter) count(t *todo) {
	now := time.Now()
	fences := make([]uint64, 0, len(v.seats))
	for i := range v.seats {
		if s := &v.seats[i]; s.stand == held && s.until.After(now) {
			fences = append(fences, s.fence)
		}
	}
	if len(fences) < v.f.need {
		for i := range v.seats {
			if s := &v.seats[i]; s.stand == held && s.earlier && v.waits {
				v.yield(i, t)
			}
		}
		return
	}
	slices.Sort(fences)
	token := fences[v.f.need-1]
	for i := range fences[:len(fences)-v.f.need+1] {
		if fences[i] == fences[i+v.f.need-1] {
			token = fences[i]
		}
	}
	token = max(token, v.target) // no fence is above the token because of a call that is under way
	equal := 0
	for _, fence := range fences {
		if fence == token {
			equal++
		}
	}
	if equal < v.f.need {
		v.target = token
		for i := range v.seats {
			if s := &v.seats[i]; s.stand == held && s.until.After(now) && s.fence < token {
				v.raise(i, token, t)
			}
		}
		return
	}
	v.token, v.phase = token, holding
	for i := range v.seats {
		if s := &v.seats[i]; s.stand == held && s.fence != token {
			s.stand = gone // the next renewal heals it, or finds that its fence is higher
		}
	}
	v.stopTimer()
	if !slices.ContainsFunc(v.rounds, func(r *round) bool { return r.kind == entering }) {
		v.tell(now, t)
	}
}

// tell tells the manager of the majority, as a message of a grant would.
func (v *voter) tell(now time.Time, t *todo) {
	left := v.deadline().Sub(now)
	text := fmt.Sprintf("%d %d %d %d", v.terms.Seq, v.f.micros(now), left.Milliseconds(), v.token)
	t.add(func() { v.f.message(text) })
}

// deadline returns the time until which a majority of votes is surely held: the last time at which so
// many are. The vote of a server counts from the sending of the call that it answered. Called with
// the lock.
func (v *voter) deadline() time.Time {
	untils := make([]time.Time, 0, len(v.seats))
	for i := range v.seats {
		if s := &v.seats[i]; s.stand == held && s.fence >= v.token {
			untils = append(untils, s.until)
		}
	}
	if len(untils) < v.f.need {
		return time.Time{}
	}
	slices.SortFunc(untils, time.Time.Compare)
	return untils[len(untils)-v.f.need]
}

// judge says whether a round is over, and what has come of it. Called with the lock.
func (v *voter) judge(r *round) (o outcome, over bool) {
	var open, votes, refused, valid, tooMany int
	var why []error
	now := time.Now()
	for i := range v.seats {
		s := &v.seats[i]
		if s.stand == held && s.fence >= v.token && s.until.After(now) {
			valid++
		}
		if r.pending[i] {
			open++
			continue
		}
		why = append(why, s.err)
		switch s.stand {
		case held:
			votes++
		case failed, gone:
			refused++
		case full:
			tooMany++
		}
	}
	all, need := len(v.seats), v.f.need
	none := func(have int) error {
		return &noMajority{have: have, need: need, cause: cmp.Or(v.f.worst(why), errForgotten), each: v.complaints()}
	}
	switch {
	case v.revoked != nil:
		return outcome{err: v.revoked}, true
	case r.kind == renewing || r.kind == probing:
		switch {
		case v.phase != holding:
			return outcome{code: life.Gone}, true
		case v.fresh(r) >= need:
			return outcome{code: life.Granted, deadline: v.deadline()}, true
		case open > 0:
			return outcome{}, false
		case valid < need:
			return outcome{code: life.Gone}, true
		}
		return outcome{err: none(v.fresh(r))}, true
	case v.phase == holding:
		return outcome{code: life.Granted, deadline: v.deadline()}, true
	case refused > all-need:
		return outcome{err: none(all - refused)}, true
	case tooMany > all-need:
		return outcome{code: life.QueueFull}, true
	case votes >= need:
		return outcome{}, false // the fences are being raised
	case r.kind == entering && !v.waits && votes+open < need && all-open-refused >= need:
		return outcome{code: life.Busy}, true
	case r.kind == entering && v.waits && votes+open < need && all-open-refused-tooMany >= need:
		return outcome{code: life.Queued}, true
	case r.kind == asking && all-open-refused >= need, open == 0 && v.waits:
		return outcome{code: life.Queued}, true
	}
	return outcome{}, false
}

// complaints returns what the servers said that cannot be counted. Called with the lock.
func (v *voter) complaints() string {
	var all []string
	for i := range v.seats {
		if err := v.seats[i].err; err != nil {
			all = append(all, fmt.Sprintf("%s: %v", field(i), err))
		}
	}
	return strings.Join(all, "; ")
}

// fresh returns how many servers have prolonged the vote in this round. Called with the lock.
func (v *voter) fresh(r *round) (n int) {
	for i := range v.seats {
		if s := &v.seats[i]; !r.pending[i] && s.stand == held && s.fence >= v.token && (r.kind == probing || !s.until.Before(r.sent.Add(r.term))) {
			n++
		}
	}
	return n
}

// worst returns the error that says most. One that stays says less if the others would be a majority: they may answer again.
func (f *Family) worst(all []error) (why error) {
	stays := func(err error) bool { return err != nil && (call.Classify(err) == call.Refused || call.Lasting(err)) }
	passing := slices.DeleteFunc(slices.Clone(all), stays)
	if len(all)-len(passing) <= len(f.servers)-f.need {
		all = passing
	}
	for _, err := range all {
		why = worse(why, err)
	}
	return why
}

// worse returns the error that says more: a refusal, then that the call may have run.
func worse(a, b error) error {
	rank := func(err error) int {
		switch {
		case err == nil:
			return 0
		case call.Classify(err) == call.NotNow:
			return 1
		case call.Classify(err) == call.Unknown:
			return 2
		}
		return 3
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}

// keep has votes that would expire before the next sign of life asked for again. Called with the
// lock.
func (v *voter) keep(t *todo) {
	now := time.Now()
	for i := range v.seats {
		s := &v.seats[i]
		if s.stand != held {
			continue
		}
		if half := s.until.Add(-v.terms.TTL / 2); half.After(now) {
			if v.terms.TTL < 2*life.AskEvery {
				v.wakeAt(half)
			}
		} else if s.asked.IsZero() && s.err == nil { // after an error, the next sign of life asks
			v.ask(i, t)
		}
	}
}

// wakeAt has the voter look again at a time. Called with the lock.
func (v *voter) wakeAt(at time.Time) {
	if v.timer != nil && !v.timerAt.IsZero() && !at.Before(v.timerAt) {
		return
	}
	v.stopTimer()
	v.timerAt = at
	v.f.active.Add(1)
	v.timer = time.AfterFunc(time.Until(at), func() {
		defer v.f.active.Done()
		v.decide(func(t *todo) {
			v.timerAt = time.Time{}
			if v.phase != wanting {
				return
			}
			for i := range v.seats {
				switch s := &v.seats[i]; {
				case s.stand == yielding && s.asked.IsZero():
					v.ask(i, t)
				case s.stand == held:
					s.err = nil // its fence may be raised again
				}
			}
			v.step(t)
		})
	})
}

func (v *voter) stopTimer() {
	if v.timer != nil && v.timer.Stop() {
		v.f.active.Done()
	}
	v.timer, v.timerAt = nil, time.Time{}
}
