package scripts_test

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold/internal/loads"
)

type landing struct {
	prefix, suffix string
	keep, remember int64
}

func (f *flightModel) land(m, token string, void int64, l landing) outcome {
	number, _ := strconv.ParseInt(token, 10, 64)
	answer := func(state int64) outcome { return outcome{ints: []int64{state, f.us, 0}} }
	if words := strings.SplitN(f.landed.text, " ", 3); len(words) == 3 && words[0] == token {
		before, _ := strconv.ParseInt(words[1], 10, 64)
		f.tell(number, before == 1, words[2][:1])
		return answer(before)
	}
	state, name := int64(0), m+" "+token
	if f.held.at(m) > f.now {
		state = 1
	} else if f.aside.at(name) > f.now {
		state = 2
	}
	body := fmt.Sprintf("%s%016d%s", l.prefix, f.us, l.suffix)
	switch state {
	case 1:
		if l.keep > 0 {
			f.put(f.value, body, l.keep)
		} else if l.keep < 0 {
			f.value.clear()
		}
		f.failure.clear()
		if l.remember > 0 {
			f.put(f.failure, body, l.remember)
		}
		if longest := max(l.keep, l.remember); longest > 0 {
			f.listSchema(f.now + longest)
		}
		f.held.drop(m)
	case 2:
		f.aside.drop(name)
	}
	f.bury(m, void)
	if state == 0 {
		return answer(0)
	}
	how := "H"
	switch {
	case state == 2:
		how = "A"
	case l.keep > 0:
		how = "S"
	}
	f.forget()
	kept := how
	if how != "S" && len(f.waiting(number, state == 1)) > 0 {
		kept += body
	}
	f.put(f.landed, fmt.Sprintf("%s %d %s", token, state, kept), f.c.record)
	if len(body) <= 4096 {
		how += body
	}
	f.tell(number, state == 1, how)
	return answer(state)
}

func (f *flightModel) invalidate(ack loads.Acknowledge) outcome {
	readers := f.tellReaders(ack)
	running := f.drop()
	return readers.after(f.us, running)
}

// drop is what an invalidation and a put have in common: 1 if a load was running.
func (f *flightModel) drop() int64 {
	m, ends := f.held.first(f.now)
	f.value.clear()
	f.failure.clear()
	f.landed.clear()
	f.schemas.drop("0")
	if m == "" {
		return 0
	}
	f.held.drop(m)
	f.aside.drop(f.aside.order(-forever, f.now)...)
	if f.fence.set {
		f.aside.put(m+" "+f.fence.text, ends)
		f.aside.keep(ends)
	}
	return 1
}

// store is a put: an invalidation, and a value in the same step.
func (f *flightModel) store(void int64, l landing, ack loads.Acknowledge) outcome {
	if f.us >= void {
		return outcome{ints: []int64{6, f.us}}
	}
	readers := f.tellReaders(ack)
	f.drop()
	f.put(f.value, fmt.Sprintf("%s%016d%s", l.prefix, f.us, l.suffix), l.keep)
	f.listSchema(f.now + l.keep)
	return readers.after(1, f.us)
}

func (f *flightModel) inspect() outcome {
	m, ends := f.held.first(f.now)
	waits := int64(0)
	for w := range f.queue.scores {
		if f.alive.at(w) > f.now {
			waits++
		}
	}
	kept := func(c *cell) int64 {
		if !c.exists() {
			return -2
		}
		return c.until - f.now
	}
	ints := []int64{
		f.us, max(0, ends-f.now), f.last(), waits, int64(len(f.aside.order(f.now+1, forever))),
		kept(f.value), int64(len(f.value.text)), kept(f.failure), int64(len(f.near.order(f.now+1, forever))),
	}
	return outcome{ints, []string{m, f.value.text[:min(128, len(f.value.text))], f.failure.text}}
}
