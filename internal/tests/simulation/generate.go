package simulation

import (
	"math/rand/v2"
	"time"
)

const (
	length      = 10 * time.Minute
	longestHold = 40 * time.Second
	longestLoad = 5 * time.Second
)

// generator makes a schedule from a seed.
type generator struct {
	*rand.Rand
	all schedule
}

// generate makes a run: bursts of calls in which clients contend for few keys, and quiet times between them,
// with faults in half of either. Now and then clients read a key so often that they keep copies of it.
func generate(seed uint64) schedule {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 2)), all: calls(seed)}
	for at := g.upTo(10 * time.Second); at < length-40*time.Second; at += 10*time.Second + g.short(90*time.Second) {
		g.heat(at)
	}
	g.all.sort()
	return g.all
}

// heat makes a key hot in some clients, and invalidates it meanwhile.
func (g *generator) heat(at time.Duration) {
	key, span := flightKeys[g.IntN(len(flightKeys))], 200*time.Millisecond+g.short(3*time.Second)
	for _, c := range g.Perm(clients)[:1+g.IntN(clients)] {
		g.add(step{
			at: at + g.upTo(span/4), client: c, verb: poll, key: key, span: span,
			by: 10*time.Millisecond + g.short(40*time.Millisecond), load: g.short(20 * time.Millisecond),
		})
	}
	for range g.IntN(6) {
		s := step{at: at + g.upTo(span), client: g.IntN(clients), verb: invalidate, key: key}
		if g.chance(4) {
			s.wait = time.Millisecond + g.short(3*time.Second)
		}
		g.add(s)
	}
	for range max(0, g.IntN(5)-1) {
		g.fault(at - time.Second + g.upTo(span+time.Second))
	}
}

// calls is generate without keys that are read again and again.
func calls(seed uint64) schedule {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1))}
	flushes := g.chance(4)
	for at := g.upTo(2 * time.Second); at < length-40*time.Second; {
		span := time.Second + g.short(12*time.Second)
		calls := len(g.all)
		if g.chance(3) {
			for range 10 + g.IntN(30) {
				g.compete(at + g.upTo(span))
			}
		} else {
			for range 6 + g.IntN(20) {
				g.call(at + g.upTo(span))
			}
		}
		if !g.chance(3) {
			for range 1 + g.IntN(5) {
				// Around the calls: before them too, so that they meet what it left.
				g.fault(at - time.Second + g.upTo(span+4*time.Second))
			}
			if flushes && g.chance(8) {
				g.add(step{at: at + g.upTo(span), verb: flushAll})
			}
		}
		if g.chance(4) {
			g.add(step{at: at + g.upTo(span), verb: limit, key: semKeys[g.IntN(len(semKeys))], permits: 1 + g.IntN(permits+1), span: g.upTo(20 * time.Second)})
		}
		for range g.IntN(6) {
			g.operate(calls)
		}
		at += span + time.Second + g.short(40*time.Second)
	}
	g.all.sort()
	return g.all
}

// add adds a step. Its times are whole microseconds, so that people can read them.
func (g *generator) add(s step) {
	s.at = max(s.at, 0)
	for _, d := range []*time.Duration{&s.at, &s.wait, &s.hold, &s.extend, &s.load, &s.span, &s.by, &s.keep} {
		*d = d.Truncate(time.Microsecond)
	}
	if s.verb == slow || s.verb == lose {
		s.span = max(s.span, time.Millisecond)
	}
	g.all = append(g.all, s)
}

// chance is one in n.
func (g *generator) chance(n int) bool { return g.IntN(n) == 0 }

func (g *generator) upTo(most time.Duration) time.Duration {
	return time.Duration(g.Int64N(int64(most)))
}

// short is a duration that is mostly much shorter than the longest.
func (g *generator) short(most time.Duration) time.Duration {
	f := g.Float64()
	return time.Millisecond + time.Duration(f*f*f*float64(most))
}

// key picks one, the first twice as often.
func (g *generator) key(all []string) string { return all[g.IntN(len(all)+1)%len(all)] }

func (g *generator) call(at time.Duration) {
	s := step{at: at, client: g.IntN(clients)}
	switch n := g.IntN(20); {
	case n < 7:
		s.verb, s.key = take, g.key(semKeys)
		if s.permits = 1; g.chance(3) {
			s.permits = 1 + g.IntN(permits)
		}
	case n < 12:
		s.verb, s.key = take, g.key(mtxKeys)
	case n < 17:
		s.verb, s.key = do, g.key(flightKeys)
	case n == 17:
		s.verb = []verb{many, peek}[g.IntN(2)]
		if s.verb == peek {
			s.key = g.key(flightKeys)
		}
	default:
		s.verb, s.key = invalidate, g.key(flightKeys)
	}
	if !g.chance(4) {
		s.wait = time.Millisecond + g.short(15*time.Second)
	}
	switch s.verb {
	case take:
		s.try = g.chance(4)
		s.hold = g.short(3 * time.Second)
		if g.chance(12) {
			s.hold = g.upTo(longestHold)
		}
		if g.chance(20) {
			s.extend = 3*time.Second + g.upTo(6*time.Second)
		}
	case do, many:
		s.load = g.short(longestLoad)
		s.obeys = g.chance(2)
		s.fails = s.verb == do && g.chance(6)
		s.big = s.verb == do && g.chance(3)
	}
	g.add(s)
}

// compete makes a call on the family with a total.
func (g *generator) compete(at time.Duration) {
	s := step{at: at, client: g.IntN(clients), verb: take, key: g.key(totKeys), permits: 1}
	switch g.IntN(8) {
	case 0:
		s.verb, s.permits = adjust, g.IntN(totLimit+2)
	case 1:
		s.verb, s.key, s.permits = adjust, "", g.IntN(total+3)
	case 2:
		s.permits = 1 + g.IntN(totLimit)
	}
	if g.chance(3) {
		s.wait = time.Millisecond + g.short(15*time.Second)
	}
	if s.verb == take {
		s.try = g.chance(6)
		s.hold = g.short(2 * time.Second)
		if g.chance(20) {
			s.hold = g.upTo(longestHold / 2)
		}
		if g.chance(20) {
			s.extend = 3*time.Second + g.upTo(6*time.Second)
		}
	}
	g.add(s)
}

// operate is what an operator does while one of the calls since the given one may be under way: it looks at
// its key, and mostly takes something away. At times somebody forges messages, too.
func (g *generator) operate(since int) {
	call := g.all[since+g.IntN(len(g.all)-since)]
	if call.verb == limit || call.key == "" {
		return
	}
	s := step{at: call.at + g.upTo(500*time.Millisecond+call.hold+call.load), client: g.IntN(clients), verb: revoke, key: call.key, pick: g.IntN(4)}
	if g.chance(5) {
		s.verb, s.pick = inspect, 0
	}
	if g.chance(4) {
		s.wait = time.Millisecond + g.short(12*time.Second)
	}
	if s.verb == revoke {
		s.queued, s.again = g.chance(2), g.chance(4)
		if g.chance(2) {
			s.hold = g.short(2 * time.Second)
		}
	}
	g.add(s)
	if g.chance(3) {
		g.add(step{at: s.at + g.short(4*time.Second), verb: forge})
	}
}

func (g *generator) fault(at time.Duration) {
	s := step{at: at, client: g.IntN(clients)}
	if g.chance(8) {
		s.client = everybody
	}
	s.dir = []string{requests, replies}[g.IntN(2)]
	switch n := g.IntN(20); {
	case n < 4:
		s.verb, s.span = lose, g.short(4*time.Second)
		s.silent = g.chance(2)
	case n < 6:
		s.verb, s.dir, s.span = lose, messages, g.upTo(8*time.Second)
	case n < 11:
		s.verb, s.span, s.by = slow, g.short(4*time.Second), g.short(6*time.Second)
	case n < 14:
		s.verb, s.dir, s.span = stall, "", g.upTo(7*time.Second)
	case n < 15:
		s.verb, s.dir, s.span = refuse, "", g.upTo(4*time.Second)
	case n < 17:
		s.verb, s.dir = cut, ""
	case n < 18:
		s.verb, s.dir, s.client = forget, "", 0
	case n < 19:
		s.verb, s.dir, s.client = die, "", g.IntN(clients)
		s.span = g.short(6 * time.Second)
	default:
		s.verb, s.dir, s.client = restart, "", g.IntN(clients)
	}
	g.add(s)
}
