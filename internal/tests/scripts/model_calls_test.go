package scripts_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// must is a value that has no error, or ends the sequence.
func must[V any](v V, err error) func(t interface{ Fatal(...any) }) V {
	return func(t interface{ Fatal(...any) }) V {
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// outcome is what a call came to, as it is compared.
type outcome struct {
	ints []int64
	text []string
}

// call makes a call and compares what it answers, publishes and leaves behind with what the reference does.
func (m *machine) call(what string, c *call.Call, predict func() outcome) outcome {
	m.calls++
	ints, err := m.client.Do(context.Background(), c)
	got, want := outcome{ints, c.Text}, outcome{}
	verb, _, _ := strings.Cut(what, " ")
	refused := m.full && slices.Contains([]string{"enter", "set", "land", "put"}, verb) && err != nil && strings.HasPrefix(err.Error(), "OOM")
	if reason, revoked := call.Revoked(err); revoked {
		got.text = []string{"REVOKED " + reason}
	} else if err != nil && !refused {
		m.Fatalf("call %d, %s: %v", m.calls, what, err)
	}
	m.Logf("%d  %s  ->  %v %q, %v", m.calls, what, got.ints, got.text, err)
	b := m.model.common()
	b.begin(m.us(), m.gone)
	if !refused { // before it changed anything
		want = predict()
	}
	cells, sent := m.read()
	if differ := difference(got, want, sent, b.sent, cells, b.cells); differ != "" {
		m.Fatalf("after %d calls, %s:%s", m.calls, what, differ)
	}
	if refused {
		m.Skip("memory has run out")
	}
	return got
}

// callOf is call for a request, with what its reply begins with if it found neither its lease nor its
// place. It is not ok if the request was revoked.
func (m *machine) callOf(r *request, nothing int64, what string, c *call.Call, predict func() any) (got outcome, ok bool) {
	got = m.call(what, c, func() outcome { return m.model.common().unlessRevoked(r.member, nothing, predict()) })
	return got, got.ints != nil
}

// void is until when copies of an enter may come, mostly 0.
func (m *machine) void(t *rapid.T) int64 {
	if rapid.IntRange(0, 3).Draw(t, "stray") < 3 {
		return 0
	}
	return m.us() + rapid.SampledFrom([]int64{5_000_000, 0, 1, 1_000}).Draw(t, "void")
}

// leaves sends a leave, which predict says the outcome of.
func (m *machine) leaves(t *rapid.T, r *request, completes bool, predict func(void int64) any) {
	void := m.void(t)
	what := fmt.Sprintf("leave %s, void %d, completes %v", name(r), void, completes)
	got, ok := m.callOf(r, 0, what, r.Leave(void, completes), func() any { return predict((void + 999) / 1000) })
	if ok {
		must(r.ReadLeave(got.ints))(m)
	}
}

func difference(got, want outcome, sent, wantSent []string, cells, wantCells []*cell) string {
	switch {
	case !slices.Equal(got.ints, want.ints) || !slices.Equal(got.text, want.text):
		return fmt.Sprintf("\n  answered %v %q\n  want     %v %q", got.ints, got.text, want.ints, want.text)
	case !slices.Equal(sent, wantSent):
		return fmt.Sprintf("\n  published %q\n  want      %q", sent, wantSent)
	case described(cells) != described(wantCells):
		return "\n  left" + described(cells) + "\n  want" + described(wantCells)
	}
	return ""
}

// pass lets time pass: to just before, at or just after something happens by itself, or by any time. The clock of a real
// server goes back now and then.
func (m *machine) pass(t *rapid.T) {
	now := m.us()
	d := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(1_000, 10_000_000)).Draw(t, "µs")
	if m.mini == nil && rapid.IntRange(0, 5).Draw(t, "back") == 5 {
		m.Logf("   the clock goes back by %v", time.Duration(d)*time.Microsecond)
		m.setClock(m.now.Add(time.Duration(-d) * time.Microsecond))
		return
	}
	if times := m.model.times(); len(times) > 0 && rapid.IntRange(0, 3).Draw(t, "to a time") > 0 {
		i := rapid.IntRange(0, len(times)-1).Draw(t, "which")
		d = max(0, times[i]*1000-now+rapid.SampledFrom([]int64{0, -1, 1, 1000, -1000}).Draw(t, "by"))
	}
	if d > 25*time.Hour.Microseconds() {
		return
	}
	m.Logf("   %v pass", time.Duration(d)*time.Microsecond)
	m.setClock(m.now.Add(time.Duration(d) * time.Microsecond))
}

// fill lets memory run out, or has it be there again. What gives back and what keeps works also then.
func (m *machine) fill(t *rapid.T) {
	if m.mini != nil {
		t.Skip("it has no limit")
	}
	m.limitMemory(t, rapid.IntRange(0, 3).Draw(t, "full") == 3)
}

// again is one that was named before, the latest sooner than others.
func (m *machine) again(t *rapid.T) *request {
	if len(m.issued) == 0 {
		t.Skip("none yet")
	}
	i := rapid.IntRange(0, min(9, len(m.issued)-1)).Draw(t, "which")
	return m.issued[len(m.issued)-1-i]
}

// name is how a request is called in what is logged.
func name(r *request) string {
	return fmt.Sprintf("%s%d", r.member[:1], r.Seq)
}

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
