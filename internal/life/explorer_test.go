package life

import (
	"fmt"
	"hash/maphash"
	"math"
	"os"
	"strconv"
	"testing"
	"time"
)

// The explorer walks the orders of events of a few attempts over a model of the scripts. The
// usual course costs nothing: each call runs and is answered after a round trip, and time passes
// until the next thing is due. Everything else is a deviation: a request or a reply is lost, a
// request comes late, a message is lost, a ctx ends, a holder gives back early, a process stops,
// an operator revokes, somebody flushes. The explorer walks all courses with up to a number of
// deviations (LEASEHOLD_DEVIATIONS), and looks at each state once.

var callNames = [...]string{"", "enter", "leave", "renewal", "ask", "renewal that asks", "question", "message", "recall"}

// A deviation is something unusual that can happen in a state.
type deviation struct {
	name string
	do   func(w *world) string
}

// deviations returns what may happen in w beside the usual course.
func (w *world) deviations(all []deviation) []deviation {
	all = all[:0]
	for i := range w.calls {
		f := &w.calls[i]
		if f.kind == noCall || f.stage > reply {
			continue
		}
		name := callNames[f.kind] + " of " + string(rune('A'+f.who))
		switch {
		case f.kind >= message:
			all = append(all, deviation{name + ": lost", func(w *world) string { w.calls[i] = flight{}; return "" }},
				deviation{name + ": late", func(w *world) string { w.calls[i].at += 1900 * time.Millisecond; return "" }})
		case f.stage == request:
			all = append(all, deviation{name + ": the request is lost", func(w *world) string { w.silence(i); return "" }},
				deviation{name + ": the request comes late", func(w *world) string {
					late := w.calls[i]
					late.stage, late.at = stray, late.sent+lateBy
					w.silence(i)
					w.put(late)
					return ""
				}},
				deviation{name + ": a copy comes late", func(w *world) string {
					late := w.calls[i]
					late.stage, late.at = stray, late.sent+lateBy
					w.silence(i)
					w.calls[i].stage, w.calls[i].at = request, w.now
					w.calls[i].copied = true
					w.put(late)
					return ""
				}})
		default:
			all = append(all, deviation{name + ": the reply is lost", func(w *world) string { w.silence(i); return "" }},
				deviation{name + ": the reply comes late", func(w *world) string { w.calls[i].at += 800 * time.Millisecond; return "" }})
		}
	}
	for i := range w.n {
		a := &w.actors[i]
		who := string(rune('A' + i))
		if a.caller == waits && !a.ctx {
			all = append(all, deviation{"the ctx of " + who + " ends", func(w *world) string { w.ends(i); return "" }})
		}
		if a.caller == holds {
			all = append(all, deviation{who + " gives back", func(w *world) string { return w.gives(i) }},
				deviation{who + " holds on", func(w *world) string { w.actors[i].until += 2 * worldTTL; return "" }})
		}
		if a.caller == holds && a.atWork {
			all = append(all, deviation{"the run of " + who + " fails", func(w *world) string { w.actors[i].errs = true; return w.gives(i) }})
		}
		if a.caller == rests {
			all = append(all, deviation{who + " is used again", func(w *world) string { return w.resumes(i) }})
		}
		if r := &w.redis; !r.revoked[i] && (r.expiry[i] > w.now || r.ticket[i] != 0) {
			all = append(all, deviation{who + " is revoked", func(w *world) string {
				r := &w.redis
				w.actors[i].revokedInLine = r.expiry[i] <= w.now
				r.expiry[i], r.ticket[i], r.revoked[i], w.spoilt = 0, 0, true, true
				r.tomb[i] = w.now + tombstone
				w.actors[i].revokd = true
				w.advance(-1)
				w.put(flight{kind: message, stage: reply, who: i, code: Unanswered, sent: w.now - time.Hour, at: w.now + w.trip})
				return ""
			}})
		}
	}
	all = w.deviationsOfReplicas(all)
	return append(all, deviation{"all processes stop", func(w *world) string { w.stop(); return "" }},
		deviation{"FLUSHALL", func(w *world) string { w.redis = serverKeys{}; w.spoilt, w.flushed = true, true; return "" }})
}

// stop stops all processes for a while. What is on its way to the server runs there meanwhile.
func (w *world) stop() {
	for until := w.now + stopFor; w.now < until; {
		at, first := until, -1
		for i, f := range w.calls {
			if f.kind != noCall && (f.stage == request || f.stage == stray) && f.at < at {
				at, first = f.at, i
			}
		}
		if w.now = max(w.now, at); first >= 0 {
			w.step(first)
		}
	}
	w.stopped = w.now
}

// silence makes the caller of a call hear nothing of it.
func (w *world) silence(i int) {
	f := &w.calls[i]
	f.stage, f.at = silentFor, f.sent+timeout
}

// An explorer walks depth first, and keeps a hash of each state with the deviations that were
// left there.
type explorer struct {
	scene  *world
	seen   map[uint64]int8
	seed   maphash.Seed
	path   []int // by step: the number of its deviation, usual for none
	states int
	most   int
	found  string
}

const usual = -1

// walk follows the usual course from w with left deviations, and branches at each state. It
// reports whether no violation was found.
func (x *explorer) walk(w world, left int8) bool {
	var all []deviation
	depth := len(x.path)
	defer func() { x.path = x.path[:depth] }()
	for {
		h := maphash.Comparable(x.seed, w)
		if before, seen := x.seen[h]; seen && before >= left || w.full {
			return true
		}
		x.seen[h] = left
		if x.states++; x.states > x.most {
			return true
		}
		if left > 0 {
			all = w.deviations(all)
			for i, d := range all {
				next := w
				x.path = append(x.path, i)
				if x.fails(d.do(&next)) || x.fails(next.judge()) || !x.walk(next, left-1) {
					return false
				}
				x.path = x.path[:len(x.path)-1]
			}
		}
		what := w.next()
		if what < 0 {
			return !x.fails(w.judgeEnd())
		}
		x.path = append(x.path, usual)
		if x.fails(w.step(what)) || x.fails(w.judge()) {
			return false
		}
	}
}

func (x *explorer) fails(violation string) bool {
	if violation != "" && x.found == "" {
		x.found = violation + x.tell()
	}
	return violation != ""
}

// tell walks the path again, and says in words what happens.
func (x *explorer) tell() (text string) {
	w := *x.scene
	for _, i := range x.path {
		if i == usual {
			what := w.next()
			text += "\n" + w.String() + w.describe(what)
			w.step(what)
		} else {
			d := w.deviations(nil)[i]
			text += fmt.Sprintf("\n%s  DEVIATION: %s", &w, d.name)
			d.do(&w)
		}
	}
	return text
}

// describe says in words what happens next.
func (w *world) describe(what int) string {
	if what >= 100 {
		return fmt.Sprintf("  %c: %s", 'A'+what%100, [...]string{"", "its caller looks, or gives back", "is due", "asks"}[what/100])
	}
	f := w.calls[what]
	name := callNames[f.kind]
	return fmt.Sprintf("  %s of %c: %s (%d)", name, 'A'+f.who, [...]string{"runs", "is answered", "had no answer", "runs late"}[f.stage], f.code)
}

// largeScene has so many states that it is walked with one deviation less than the others.
const largeScene = "a newcomer beside a waiter"

// scenes are what the explorer begins with.
var scenes = map[string]func() *world{
	"one attempt":                 func() *world { return newWorld(1, 1, nil) },
	"one attempt that tries":      func() *world { return newWorld(1, 1, func(w *world) { w.actors[0].Waits = false }) },
	"two attempts":                func() *world { return newWorld(2, 1, nil) },
	"two of one handle":           func() *world { return newWorld(2, 1, oneHandle) },
	largeScene:                    func() *world { return newWorld(3, 1, newcomer) },
	"three attempts, limit 2":     func() *world { return newWorld(3, 2, nil) },
	"one that keeps":              func() *world { return newWorld(1, 1, keeping(1)) },
	"one that keeps, and another": func() *world { return newWorld(2, 1, keeping(1)) },
	"two that keep":               func() *world { return newWorld(2, 1, keeping(2)) },
	"two that run a slot":         func() *world { return newWorld(2, 1, running) },
	"two of one handle that run":  func() *world { return newWorld(2, 1, func(w *world) { running(w); oneHandle(w) }) },
	"one that replicas confirm":   func() *world { return newWorld(1, 1, replicated) },
	"two that replicas confirm":   func() *world { return newWorld(2, 1, replicated) },
	"two over a long way":         func() *world { return newWorld(2, 1, func(w *world) { w.trip = 450 * time.Millisecond }) },
	"MaxHold":                     func() *world { return newWorld(1, 1, func(w *world) { w.actors[0].MaxHold = 200 * time.Millisecond }) },
}

// explore walks a scene with up to n deviations.
func explore(scene func() *world, n int8, most int) (found string, states int) {
	x := &explorer{scene: scene(), seen: map[uint64]int8{}, seed: maphash.MakeSeed(), most: most}
	x.walk(*x.scene, n)
	return x.found, x.states
}

// TestExplorer walks all scenes. LEASEHOLD_DEVIATIONS sets how far.
func TestExplorer(t *testing.T) {
	n := int8(2)
	if text := os.Getenv("LEASEHOLD_DEVIATIONS"); text != "" {
		more, err := strconv.ParseInt(text, 10, 8)
		if err != nil {
			t.Fatal(err)
		}
		n = int8(more)
	}
	for name, scene := range scenes {
		n := n
		if name == largeScene {
			n--
		}
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			found, states := explore(scene, n, math.MaxInt)
			t.Logf("%d states with %d deviations in %v", states, n, time.Since(began))
			if found != "" {
				t.Error(found)
			}
		})
	}
}
