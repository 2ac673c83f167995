package quorum

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
)

// A server that was restarted, or flushed, may have forgotten the vote that it gave. It abstains for
// one TTL (luascripts/quorum/shared/process.lua): by then all votes that it may have forgotten have
// expired. It must not vote with a lower token than before either. So it votes again only once a
// client has told it a floor:
//
//   - If a majority remembers, the floor is the highest token that these servers know. A token that
//     counts is known to a majority, and so to one of them. They are asked only after the abstention
//     is over: before that, a token may still be counted with a vote that was forgotten.
//   - If no majority remembers, all servers must answer, after all abstentions are over.
//   - If all servers say that they have never voted, they begin at once.
//
// The client names the abstention that it ends, so that nothing happens if the server was restarted
// once more.
type memory struct {
	mu      sync.Mutex // guards the fields below; a leaf
	running bool       // remember runs
	over    []int64    // by server: the abstention (its birth, µs) that was over when it last answered
}

type look struct {
	ok, votes, fresh bool
	birth            int64
	left             time.Duration
	top              int64
}

// remind notes that a server abstains. It reports whether the server may vote soon: the voters are
// then told what came of it.
func (f *Family) remind(i int, birth int64, left time.Duration, fresh bool) bool {
	m := &f.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(i, look{ok: true, birth: birth, left: left})
	if left > 0 && !fresh {
		return false
	}
	if !m.running {
		m.running = true
		f.active.Go(f.remember)
	}
	return true
}

// note notes that an abstention is over. Called with the lock.
func (m *memory) note(i int, l look) {
	if l.ok && !l.votes && l.left == 0 {
		m.over[i] = l.birth
	}
}

// remember lets servers vote that may, and tells the voters.
func (f *Family) remember() {
	m := &f.memory
	votes := make([]bool, len(f.servers))
	for range 10 { // what is over is seen in one look, and acted on after the next
		m.mu.Lock()
		before := slices.Clone(m.over)
		m.mu.Unlock()
		looks := f.lookAll(nil)
		ends := f.mayVote(looks, before)
		if ends != nil {
			looks = f.lookAll(ends)
		}
		more, begun, fresh := false, false, false
		m.mu.Lock()
		for i, l := range looks {
			votes[i] = l.ok && l.votes
			begun, fresh = begun || votes[i], fresh || l.ok && !l.votes && l.fresh
			more = more || l.ok && !l.votes && l.left == 0 && m.over[i] != l.birth
			m.note(i, l)
		}
		m.mu.Unlock()
		if begun && fresh { // another client may be about to begin
			time.Sleep(20 * time.Millisecond)
			more = true
		}
		if !more {
			break
		}
	}
	m.mu.Lock()
	m.running = false
	m.mu.Unlock()
	f.each(func(v *voter) {
		for i := range votes {
			v.onMemory(i, votes[i])
		}
	})
}

// An ending says that the abstentions of some servers end.
type ending struct {
	births []int64 // by server; 0: it does not end
	floor  int64
	begins bool
}

// mayVote says which abstentions end after looks. before tells which were over before the looks.
func (f *Family) mayVote(looks []look, before []int64) *ending {
	e := &ending{births: make([]int64, len(looks))}
	remember, answered, fresh, over, top := 0, 0, 0, 0, int64(0)
	for i, l := range looks {
		if !l.ok {
			continue
		}
		answered++
		switch {
		case l.votes:
			remember++
		case l.fresh:
			fresh++
		}
		if !l.votes && l.left == 0 && before[i] == l.birth {
			over++
		}
		if l.votes || remember < f.need {
			top = max(top, l.top)
		}
	}
	all := len(looks)
	switch {
	case answered == all && fresh == all:
		e.begins = true
	case remember >= f.need:
	case answered == all && remember+over == all:
	default:
		return nil
	}
	any := false
	for i, l := range looks {
		if l.ok && !l.votes && (e.begins || l.left == 0 && before[i] == l.birth) {
			e.births[i], any = l.birth, true
		}
	}
	if e.floor = top; !any {
		return nil
	}
	return e
}

// lookAll asks all servers for their memory, and ends abstentions on the way if end says so. It waits
// a moment for those that do not answer.
func (f *Family) lookAll(end *ending) []look {
	ctx, cancel := context.WithTimeout(f.life, late)
	defer cancel()
	answers, _ := ask(ctx, f, late, func(ctx context.Context, s *server) (l look, err error) {
		birth, floor, begins := int64(0), int64(0), 0
		if end != nil {
			birth, floor, begins = end.births[s.i], end.floor, call.Flag(end.begins)
		}
		c := call.New(lookScript, 1, f.born, birth, 1, call.Milliseconds(f.ttl), floor, begins).WithText()
		v, err := s.client.Do(ctx, c)
		if err == nil && len(v) != 6 {
			err = call.Malformed("quorum look", v)
		}
		if err != nil {
			return l, err
		}
		for _, run := range c.Text {
			s.meet(run)
		}
		l = look{ok: true, votes: v[0] == 1, birth: v[2], left: call.Duration(v[3]), fresh: v[4] == 1, top: v[5]}
		return l, s.twice()
	})
	looks := make([]look, len(f.servers))
	for i, l := range answers {
		looks[i] = l
	}
	return looks
}
