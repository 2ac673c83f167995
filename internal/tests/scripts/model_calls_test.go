package scripts_test

import (
	"context"
	"fmt"
	"slices"
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

// call makes a call and compares what it answers, publishes and leaves behind with what the reference does. clockAt
// is which integer of the reply is the clock, -1 where it has none that often.
func (m *machine) call(what string, c *call.Call, clockAt int, predict func(reference) outcome) outcome {
	m.calls++
	before := m.clock()
	ints, err := m.client.Do(context.Background(), c)
	got := outcome{ints, c.Text}
	if reason, revoked := call.Revoked(err); revoked {
		got.text = []string{"REVOKED " + reason}
	} else if err != nil {
		m.Fatalf("call %d, %s: %v", m.calls, what, err)
	}
	m.Logf("%d  %s  ->  %v %q", m.calls, what, got.ints, got.text)
	m.compare(what, before, got, clockAt, predict)
	return got
}

// callOf is call for a request, with what its reply begins with if it found neither its lease nor its
// place. It is not ok if the request was revoked.
func (m *machine) callOf(r *request, nothing int64, what string, c *call.Call, clockAt int, predict func(reference) any) (got outcome, ok bool) {
	got = m.call(what, c, clockAt, func(ref reference) outcome { return ref.(revoking).unlessRevoked(r.Member(), nothing, predict(ref)) })
	return got, !m.wasRevoked(r, got)
}

// void is until when copies of an enter may come, mostly 0.
func (m *machine) void(t *rapid.T) int64 {
	if rapid.IntRange(0, 3).Draw(t, "stray") < 3 {
		return 0
	}
	return m.clock() + rapid.SampledFrom([]int64{5_000_000, 0, 1, 1_000}).Draw(t, "void")
}

// leaves sends a leave, which predict says the outcome of.
func (m *machine) leaves(t *rapid.T, r *request, predict func(ref reference, void int64) any) {
	m.gaveUp(r)
	void := m.void(t)
	got, ok := m.callOf(r, 0, fmt.Sprintf("leave %s, void %d", name(r), void), r.Leave(void), 1, func(ref reference) any {
		return predict(ref, (void+999)/1000)
	})
	if ok {
		must(r.ReadLeave(got.ints))(m)
	}
}

func (m *machine) compare(what string, before int64, got outcome, clockAt int, predict func(reference) outcome) {
	after, cells, sent := m.read()
	told := int64(0)
	if clockAt >= 0 && clockAt < len(got.ints) {
		if told = got.ints[clockAt]; told < before || told > after {
			m.Fatalf("call %d, %s: it answers with the time %d; it was made between %d and %d", m.calls, what, told, before, after)
		}
	}
	differ := ""
	for _, at := range m.moments(before, after, told) {
		next := m.model.fork()
		b := next.common()
		b.begin(at, m.gone)
		want := predict(next)
		b.settle(cells, before/1000, after/1000, m.real())
		if d := difference(got, want, sent, b.sent, cells, b.cells); d == "" {
			m.model = next
			return
		} else if differ == "" {
			differ = d
		}
	}
	m.Fatalf("after %d calls, %s:%s", m.calls, what, differ)
}

// settle takes over what the clock of a real server decided: whether a key has ended by the time that it is read; and
// when a string ends, which an older server counts from when its SET ran, not from the time that the script read.
func (b *base) settle(cells []*cell, before, after int64, real bool) {
	for i, c := range b.cells {
		if !real || !c.exists() {
			continue
		}
		if got := cells[i]; !got.exists() {
			if c.until >= before-2 && c.until <= after+1 {
				c.clear()
			}
		} else if off := c.until - got.until; c.set && max(off, -off) <= after-before+1 {
			c.until = got.until
		}
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
	now := m.clock()
	d := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(1_000, 10_000_000)).Draw(t, "µs")
	if times := m.model.times(); len(times) > 0 && rapid.IntRange(0, 3).Draw(t, "to a time") > 0 {
		i := rapid.IntRange(0, len(times)-1).Draw(t, "which")
		d = max(0, times[i]*1000-now+rapid.SampledFrom([]int64{0, -1, 1, 1000, -1000}).Draw(t, "by"))
	}
	if d > 25*time.Hour.Microseconds() {
		return
	}
	m.elapse(d)
}

func (m *machine) elapse(d int64) {
	m.Logf("   %v pass", time.Duration(d)*time.Microsecond)
	if !m.real() {
		// In whole ms: a key's time is kept more finely there than it tells.
		m.now = time.UnixMilli((m.clock() + d) / 1000)
		m.mini.SetTime(m.now)
		return
	}
	ms := d / 1000
	m.aged += ms
	b := m.model.common()
	words := []any{ms}
	for _, c := range b.cells {
		words = append(words, c.clock, c.name == "turns")
	}
	if err := m.rdb.Eval(context.Background(), aging, m.names, words...).Err(); err != nil {
		m.Fatal(err)
	}
	m.model.age(ms)
	now, cells, _ := m.read()
	for i, c := range b.cells {
		if c.until != immortal && c.until <= now/1000 && !cells[i].exists() {
			c.clear()
		}
	}
}

// aging brings nearer what is to come, by so many ms.
const aging = `
for i, key in ipairs(KEYS) do
  local at = redis.call('PEXPIRETIME', key)
  if at >= 0 then
    local clock, turns = ARGV[2 * i] == '1', ARGV[2 * i + 1] == '1'
    local all = (clock or turns) and redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') or {}
    for j = 1, #all, 2 do
      local score = tonumber(all[j + 1])
      if clock or score >= 2^50 then
        score = score - ARGV[1]
      elseif score >= 2^44 then
        score = score - ARGV[1] * 32
      elseif score < 0 then
        score = score + ARGV[1] * 32
      end
      redis.call('ZADD', key, score, all[j])
    end
    redis.call('PEXPIREAT', key, at - ARGV[1])
  end
end
return 1`

// lose deletes a key, as an eviction does.
func (m *machine) lose(i int) {
	c := m.model.common().cells[i]
	m.Logf("   %s is lost", c.name)
	m.rdb.Del(context.Background(), m.names[i])
	c.clear()
}

// issue names a new request; again is one that was named before, the latest sooner than others.
func (m *machine) again(t *rapid.T) *request {
	if len(m.issued) == 0 {
		t.Skip("none yet")
	}
	i := rapid.IntRange(0, min(9, len(m.issued)-1)).Draw(t, "which")
	return m.issued[len(m.issued)-1-i]
}

// name is how a request is called in what is logged.
func name(r *request) string {
	return fmt.Sprintf("%s%d", r.Member()[:1], r.Seq)
}
