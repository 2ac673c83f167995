package quorum

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/permits"
)

// A leaveRound is a joint leave without an outcome.
type leaveRound struct {
	answers   []int8 // by server: 0 none yet, 1 it had the vote, 2 it had not, 3 no answer came, 4 it has forgotten
	valid     []bool // the vote was held when the leave began
	completes bool
	over      bool
	timer     *time.Timer
	end       func([]int64, []string, error)
}

// leave gives all back, for good. It is over once a majority has answered, and it is certain whether
// the lock was held until now. Leaves that are not answered then are repeated without it.
func (v *voter) leave(completes bool, end func([]int64, []string, error)) {
	v.decide(func(t *todo) {
		had := v.phase == holding
		if v.phase != leaving {
			v.held = had
			for i := range v.seats {
				s := &v.seats[i]
				s.left = !s.touched || v.phase == resting
				s.had = had && s.stand == held && s.until.After(time.Now())
			}
			for _, r := range slices.Clone(v.rounds) {
				v.close(r, outcome{code: life.Gone}, t) // no error: the servers may be well
			}
			v.phase = leaving
			v.stopTimer()
			v.forget()
		}
		l := &leaveRound{answers: make([]int8, len(v.seats)), valid: make([]bool, len(v.seats)), completes: completes, end: end}
		us, _ := v.f.median(v.res.FirstKey())
		for i := range v.seats {
			s := &v.seats[i]
			if l.valid[i] = s.had; s.left {
				l.answers[i] = cmp.Or(s.answer, 2)
				continue
			}
			t.add(func() { v.leaveServer(i, us, l) })
		}
		v.f.active.Add(1)
		l.timer = time.AfterFunc(late, func() {
			defer v.f.active.Done()
			v.decide(func(t *todo) {
				for i, a := range l.answers {
					l.answers[i] = cmp.Or(a, 3)
				}
				v.judgeLeave(l, t)
			})
		})
		v.judgeLeave(l, t)
	})
}

func (v *voter) leaveServer(i int, lead int64, l *leaveRound) {
	server, key := v.f.servers[i], v.res.FirstKey()
	v.mu.Lock()
	s := &v.seats[i]
	flights, copies := slices.Clone(s.flights), s.copies
	var once *permits.Once
	if l.completes {
		once = v.once
	}
	member := v.member
	v.mu.Unlock()
	copies = v.settle(flights, copies)
	until := time.Now().Add(voidAfter + v.terms.TTL)
	prepare := func() *call.Call { return v.res.leave(member, copies, lead, once) }
	c := prepare()
	c.Done = func(reply []int64, err error) {
		if err == nil && len(reply) < 2 {
			err = call.Malformed("leave", reply)
		}
		if err != nil && !isRevoked(err) {
			v.f.askOthers(v, i) // the lost reply may have given the vote to another waiter, and its message may be lost, too
			if once == nil {    // else the caller repeats the leave
				v.mu.Lock()
				first := !s.inLine
				s.inLine = true
				v.mu.Unlock()
				if first {
					server.leaveLater(straggler{key, prepare, until})
				}
			}
		}
		v.onLeft(i, l, reply, err)
	}
	if err := server.away(key); err != nil {
		c.Done(nil, call.NotSent(err))
		return
	}
	server.start(context.Background(), c)
}

// askOthers has the other waiters for the same lock ask a server.
func (f *Family) askOthers(v *voter, i int) {
	f.each(func(other *voter) {
		if other != v && other.res.FirstKey() == v.res.FirstKey() {
			other.onHint(i)
		}
	})
}

func (v *voter) onLeft(i int, l *leaveRound, reply []int64, err error) {
	v.decide(func(t *todo) {
		s := &v.seats[i]
		switch {
		case isRevoked(err):
			v.revoked, s.left, l.answers[i] = err, true, 2
		case err != nil:
			l.answers[i] = cmp.Or(l.answers[i], 3)
			v.leaveErr = worse(v.leaveErr, err)
		default:
			s.left, s.answer = true, 2
			switch reply[0] {
			case 1:
				s.answer = 1
			case 3:
				s.answer = 4
			}
			l.answers[i] = s.answer
		}
		v.judgeLeave(l, t)
	})
}

// judgeLeave ends a joint leave if its outcome is certain, or will not become so. Called with the
// lock.
func (v *voter) judgeLeave(l *leaveRound, t *todo) {
	if l.over {
		return
	}
	answered, had, may, open := 0, 0, 0, 0
	for i, a := range l.answers {
		switch a {
		case 0:
			open++
		case 1:
			had++
		case 3, 4:
			if l.valid[i] && !l.completes {
				may++ // nothing says that another one got this vote before its time was over
			}
		}
		if a != 0 && a != 3 {
			answered++
		}
	}
	var reply []int64
	var err error
	need := v.f.need
	switch {
	case v.revoked != nil && (answered >= need || open == 0):
		err = v.revoked
	case answered >= need && had >= need:
		reply = []int64{1}
	case answered >= need && !v.held:
		reply = []int64{2}
	case open > 0:
		return
	case answered < need:
		err = &noMajority{have: answered, need: need, cause: worse(v.leaveErr, errNotYet)}
	case had+may >= need:
		reply = []int64{1}
	case l.completes && had+len(l.answers)-answered >= need:
		err = &noMajority{have: had, need: need, cause: worse(v.leaveErr, errNotYet)}
	default:
		reply = []int64{0}
	}
	l.over = true
	if l.timer.Stop() {
		v.f.active.Done()
	}
	t.add(func() { l.end(reply, nil, err) })
}
