package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// shortLength is the length of a run of slots, of several at once, or of kept leases.
const shortLength = 3 * time.Minute

// plan makes a run from a seed. Every fifth is one of slots, of several at once, or of kept leases.
func plan(seed uint64) schedule {
	if seed%5 != 0 {
		return misused(seed, generate(seed))
	}
	return misused(seed, [](func(uint64) schedule){slotsOf, severalOf, keptOf}[seed/5%3](seed))
}

// misused adds hooks that break off around some steps of clients.
func misused(seed uint64, s schedule) schedule {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 6)), all: s}
	for range g.IntN(len(s)) / 8 {
		at := s[g.IntN(len(s))]
		g.add(g.misuse(at.client, at.at-2*time.Millisecond+g.short(4*time.Second)))
	}
	g.all.sort()
	return g.all
}

func (g *generator) misuse(client int, at time.Duration) step {
	return step{
		at: at, client: client, verb: misuse, span: time.Millisecond + g.short(3*time.Second),
		dir: []string{panics, exits, fails, swallows, again}[g.IntN(5)], late: g.chance(2),
	}
}

// slotsOf makes a run in which clients want the same slots at about the same time.
func slotsOf(seed uint64) schedule { return bursts(seed, 3, 2, (*generator).slots) }

// severalOf makes one in which they take several things at once, in any order.
func severalOf(seed uint64) schedule { return bursts(seed, 4, 2, (*generator).severals) }

// keptOf makes one in which they use the same keys again and again, and keep leases of them.
func keptOf(seed uint64) schedule { return bursts(seed, 5, 1, (*generator).trains) }

// bursts makes a run of bursts of calls and of quiet times. In one of keeping runs clients keep leases.
func bursts(seed, stream uint64, keeping int, burst func(g *generator, at, span time.Duration)) schedule {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, stream))}
	if g.chance(keeping) {
		for _, c := range g.Perm(clients)[:2+g.IntN(clients-1)] {
			g.add(step{verb: keeps, client: c, keep: []time.Duration{50 * time.Millisecond, 400 * time.Millisecond, time.Second, 1500 * time.Millisecond}[g.IntN(4)]})
		}
	}
	flushes, faulty := g.chance(4), !g.chance(4)
	for at := g.upTo(2 * time.Second); at < shortLength-20*time.Second; {
		span := time.Second + g.short(8*time.Second)
		burst(g, at, span)
		if faulty && g.chance(2) {
			for range 1 + g.IntN(4) {
				g.fault(at - time.Second + g.upTo(span+3*time.Second))
			}
			if g.chance(2) {
				g.add(step{at: at + g.upTo(span), client: g.IntN(clients), verb: lose, dir: messages, span: g.upTo(3 * time.Second)})
			}
			if flushes && g.chance(4) {
				g.add(step{at: at + g.upTo(span), verb: flushAll})
			}
		}
		if g.chance(6) {
			g.add(step{at: at + g.upTo(span), verb: limit, key: semKeys[g.IntN(len(semKeys))], permits: 1 + g.IntN(permits+1), span: g.upTo(10 * time.Second)})
		}
		for range max(0, g.IntN(5)-2) {
			s := step{at: at + g.upTo(span+time.Second), client: g.IntN(clients), verb: revoke, key: g.anyKey(), pick: g.IntN(4), queued: g.chance(3), again: g.chance(4)}
			if g.chance(4) {
				s.verb, s.queued, s.again, s.pick = inspect, false, false, 0
			}
			g.add(s)
		}
		at += span + g.short(25*time.Second)
	}
	g.all.sort()
	return g.all
}

// strike is a fault at the moment at which a call of a client ends, or begins.
func (g *generator) strike(client int, at time.Duration) {
	s := step{at: at - time.Millisecond + g.upTo(2*time.Millisecond), client: client, dir: []string{requests, replies}[g.IntN(2)]}
	switch g.IntN(6) {
	case 0:
		s.verb, s.dir = cut, ""
	case 1:
		s.verb, s.dir, s.span = die, "", g.short(4*time.Second)
	case 2:
		s.verb, s.dir, s.span = stall, "", g.upTo(5*time.Second)
	case 3:
		s.verb, s.span, s.by = slow, 3*time.Millisecond, g.short(5*time.Second)
	default:
		s.verb, s.span, s.silent = lose, 2*time.Millisecond, g.chance(2)
	}
	g.add(s)
}

// anyKey is one of a lock or a semaphore.
func (g *generator) anyKey() string {
	if g.chance(2) {
		return g.key(mtxKeys)
	}
	return g.key(semKeys)
}

// single is a call for one lock, or for permits of one key.
func (g *generator) single(at time.Duration) {
	s := step{at: at, client: g.IntN(clients), verb: take, key: g.anyKey(), try: g.chance(4), hold: g.short(time.Second)}
	if kindOf(s.key) == "sem" && g.chance(3) {
		s.permits = 1 + g.IntN(permits)
	}
	if !g.chance(3) {
		s.wait = time.Millisecond + g.short(10*time.Second)
	}
	if g.chance(20) {
		s.extend = 3*time.Second + g.upTo(4*time.Second)
	}
	g.add(s)
}

// slots makes a burst of calls for a few slots.
func (g *generator) slots(at, span time.Duration) {
	for i := range 1 + g.IntN(3) {
		key, slot, keep := g.key(mtxKeys), fmt.Sprintf("%v-%d", at.Truncate(time.Millisecond), i), 30*time.Minute
		if g.chance(5) {
			keep = time.Second + g.short(5*time.Second)
		}
		keep = keep.Truncate(time.Millisecond)
		for range 3 + g.IntN(6) {
			s := step{
				at: at + g.short(span), client: g.IntN(clients), verb: once, key: key, slot: slot, keep: keep,
				try: g.chance(4), hold: g.short(2 * time.Second), fails: g.chance(5), obeys: g.chance(2),
			}
			if g.chance(15) {
				s.hold = g.upTo(6 * time.Second)
			}
			if g.chance(3) {
				s.wait = time.Millisecond + g.short(10*time.Second)
			}
			if g.chance(10) { // a host whose clock is late
				s.at += g.upTo(20 * time.Second)
			}
			g.add(s)
			if g.chance(6) {
				g.strike(s.client, s.at+s.hold)
			}
		}
	}
	for range g.IntN(6) {
		g.single(at + g.upTo(span))
	}
}

// severals makes a burst of calls that want several things, and some that want one of them.
func (g *generator) severals(at, span time.Duration) {
	for range 5 + g.IntN(15) {
		every := []string{"a", "b", "m", "n", g.key(totKeys)}
		words := make([]string, 0, len(every))
		for _, i := range g.Perm(len(every))[:2+g.IntN(3)] {
			word := every[i]
			if n := 1 + g.IntN(2); kindOf(word) != "mtx" && n > 1 {
				word = fmt.Sprintf("%s*%d", word, n)
			}
			words = append(words, word)
		}
		s := step{at: at + g.upTo(span), client: g.IntN(clients), verb: several, key: strings.Join(words, ","), try: g.chance(4), hold: g.short(time.Second)}
		if g.chance(3) {
			s.wait = time.Millisecond + g.short(10*time.Second)
		}
		g.add(s)
	}
	for range g.IntN(8) {
		g.single(at + g.upTo(span))
	}
}

// trains makes a burst in which clients use a key again and again, and others come between.
func (g *generator) trains(at, span time.Duration) {
	for range 1 + g.IntN(4) {
		s := step{client: g.IntN(clients), verb: take, key: g.anyKey()}
		if kindOf(s.key) == "sem" && g.chance(4) {
			s.permits = 1 + g.IntN(permits)
		}
		gap := g.short(time.Second)
		s.at = at + g.upTo(span)
		for range 2 + g.IntN(12) {
			s.hold, s.try, s.wait = g.short(100*time.Millisecond), g.chance(4), 0
			if g.chance(3) {
				s.wait = time.Millisecond + g.short(5*time.Second)
			}
			g.add(s)
			s.at += s.hold + g.upTo(2*gap)
		}
	}
	for range g.IntN(6) {
		g.single(at + g.upTo(span))
	}
	switch g.IntN(8) {
	case 0:
		g.severals(at, span)
	case 1:
		g.slots(at, span)
	}
}
