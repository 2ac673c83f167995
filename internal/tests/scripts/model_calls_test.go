package scripts_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/call"
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
func (m *machine) leaves(t *rapid.T, r *request, predict func(void int64) any) {
	void := m.void(t)
	got, ok := m.callOf(r, 0, fmt.Sprintf("leave %s, void %d", name(r), void), r.Leave(void, false), func() any { return predict((void + 999) / 1000) })
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

// pass lets time pass: to just before, at or just after something happens by itself, or by any time.
func (m *machine) pass(t *rapid.T) {
	now := m.us()
	d := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(1_000, 10_000_000)).Draw(t, "µs")
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
