package scripts_test

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold/internal/protocol"
)

// flightModel is the reference of cached values: who loads, who waits for which
// load, and what is kept of the last ones.
type flightModel struct {
	base
	aside, schemas, near          *cell
	fence, value, failure, landed *cell
}

func newFlightModel(c constants) *flightModel {
	f := &flightModel{}
	f.c = c
	f.held, f.queue, f.alive = sortedSet("holders", true), sortedSet("queue", false), sortedSet("alive", true)
	f.fence, f.value, f.failure, f.landed = &cell{name: "fence"}, &cell{name: "value"}, &cell{name: "failure"}, &cell{name: "landed"}
	f.aside, f.schemas, f.near, f.revocations = sortedSet("aside", true), sortedSet("schemas", true), sortedSet("near", true), newRevocations()
	f.cells = []*cell{f.held, f.queue, f.alive, f.fence, f.value, f.failure, f.landed, f.aside, f.schemas, f.marks, f.audit, f.near}
	return f
}

// listSchema says that the schema, which is 0 in all of these tests, is in use until at.
func (f *flightModel) listSchema(at int64) {
	f.schemas.put("0", max(f.schemas.at("0"), at))
	f.schemas.keep(at)
}

func sum(text string) string {
	h := sha1.Sum([]byte(text))
	return hex.EncodeToString(h[:])
}

func head(text string) string { return text[:min(22, len(text))] }

// last is the token of the last load.
func (f *flightModel) last() int64 { n, _ := strconv.ParseInt(f.fence.text, 10, 64); return n }

// invalidated is the load, told by its member or its token, that an invalidation
// has moved aside: its name there, its token, and when its lease ends.
func (f *flightModel) invalidated(member string, token int64) (name string, t, ends int64) {
	for _, name := range f.aside.order(f.now+1, forever) {
		m, text, _ := strings.Cut(name, " ")
		t, _ := strconv.ParseInt(text, 10, 64)
		if m == member || t == token {
			return name, t, f.aside.at(name)
		}
	}
	return "", 0, 0
}

// waiting are those who wait for a load. Where the fence was lost, those who wait
// for the running one have newer tokens than it has.
func (f *flightModel) waiting(token int64, current bool) []string {
	to := token
	if current {
		to = forever
	}
	return f.queue.order(token, to)
}

func (f *flightModel) tell(token int64, current bool, what string) {
	all := f.waiting(token, current)
	for _, m := range all {
		words := strings.SplitN(m, ".", 3)
		f.publish(words[0], fmt.Sprintf("%s %d 0 %d %s", words[1], f.us, f.queue.at(m), what))
	}
	f.unqueue(all...)
}

func nothing(code, us int64) outcome { return outcome{ints: []int64{code, us, 0, 0, 0}} }

type look struct {
	void           int64
	wait           bool
	seen, poisoned string
}

func (f *flightModel) enter(m string, ttl int64, o look) outcome {
	if f.us >= o.void {
		return nothing(6, f.us)
	}
	if v := f.value.text; v != "" && head(v) != o.seen && !(len(o.seen) == 40 && sum(v) == o.seen) {
		r := nothing(8, f.us)
		r.text = []string{v}
		return r
	}
	if f.failure.set && (o.poisoned == "" || sum(f.failure.text) != o.poisoned) {
		r := nothing(9, f.us)
		r.text = []string{f.failure.text}
		return r
	}
	granted := func(left, token int64) outcome { return outcome{ints: []int64{1, f.us, left, token, 0}} }
	if left := f.held.at(m) - f.now; left > 0 {
		return granted(left, f.last())
	}
	if f.alive.has(m) && !f.queue.has(m) {
		return nothing(7, f.us)
	}
	if name, token, ends := f.invalidated(m, -1); name != "" {
		return granted(ends-f.now, token)
	}
	if loader, ends := f.held.first(f.now); loader != "" {
		code, last := int64(3), f.last()
		if o.wait {
			code = 2
			if last == 0 {
				last = f.us
				f.put(f.fence, strconv.FormatInt(last, 10), ends-f.now+f.c.alive)
			}
			f.queue.put(m, last)
			f.alive.put(m, f.now+f.c.alive)
			f.lives()
			f.forget()
		}
		return outcome{ints: []int64{code, f.us, ends - f.now, last, int64(len(f.queue.scores))}}
	}
	token := max(f.last()+1, f.us)
	f.put(f.fence, strconv.FormatInt(token, 10), ttl+f.c.alive)
	f.held.put(m, f.now+ttl)
	f.held.keep(f.now + ttl)
	f.listSchema(f.now + ttl + f.c.alive)
	f.held.drop(f.held.order(-forever, f.now)...)
	if f.queue.has(m) {
		f.unqueue(m)
	}
	return granted(ttl, token)
}

// ask takes members, and the tokens of the loads that they wait for.
func (f *flightModel) ask(members []string, tokens []int64) outcome {
	_, till := f.held.first(f.now)
	last, record := f.last(), int64(-1)
	if text, _, ok := strings.Cut(f.landed.text, " "); ok {
		record, _ = strconv.ParseInt(text, 10, 64)
	}
	f.lives()
	var first int64
	var standings []int64
	var text []string
	places := maps.Clone(f.queue.scores) // as they were: a member that is named twice is asked about twice
	for i, m := range members {
		state, left, token, place := int64(0), int64(0), tokens[i], int64(places[m])
		switch {
		case f.held.at(m) > f.now:
			state, left, token = 1, f.held.at(m)-f.now, last
		case f.landed.set && record == token:
			state, text = 8, append(text, f.landed.text)
		case place > 0:
			ends := till
			if place != last || till == 0 {
				_, _, ends = f.invalidated("", place)
			}
			if ends > 0 {
				state, token = 2, place
				f.alive.put(m, f.now+f.c.alive)
				f.alive.keep(f.now + f.c.alive)
				if first == 0 || ends < first {
					first = ends
				}
			}
		}
		if reason, revoked := f.marks.fields[protocol.ListedID(m)]; state == 0 && revoked {
			state, text = 3, append(text, reason)
		}
		if place > 0 && state != 2 {
			f.unqueue(m)
		}
		standings = append(standings, state, left, token)
	}
	f.forget()
	ints := []int64{f.us, max(0, first-f.now), int64(len(f.queue.scores))}
	return outcome{append(ints, standings...), text}
}

func (f *flightModel) leave(m string, void int64) outcome {
	name, token, _ := f.invalidated(m, -1)
	state := int64(0)
	switch {
	case f.held.drop(m) > 0:
		state = 1
		f.tell(f.last(), true, "F")
	case name != "":
		f.aside.drop(name)
		state = 1
		f.tell(token, false, "F")
	case f.queue.has(m):
		f.unqueue(m)
		state = 2
	}
	f.bury(m, void)
	return outcome{ints: []int64{state, f.us}}
}

func (f *flightModel) renew(m string, ttl int64, alone bool, void int64) []int64 {
	where, name, token, current := f.held, m, f.last(), true
	ends := f.held.at(m)
	if ends <= f.now {
		where, current = f.aside, false
		if name, token, ends = f.invalidated(m, -1); name == "" {
			return []int64{0}
		}
	}
	if alone {
		f.forget()
		if len(f.waiting(token, current)) == 0 {
			where.drop(name)
			f.bury(m, void)
			return []int64{-1}
		}
	}
	till := f.now + ttl
	if till <= ends {
		return []int64{ends - f.now}
	}
	where.put(name, till)
	where.keep(till)
	f.fence.keep(till + f.c.alive)
	if current && f.schemas.has("0") {
		f.listSchema(till + f.c.alive)
	}
	return []int64{ttl}
}
