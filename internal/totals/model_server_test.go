package totals_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/luascripts"
)

// The model tests run so many random sequences a server; LEASEHOLD_ROUNDS
// multiplies it. The text of a failure names the seed, with which -rapid.seed or
// LEASEHOLD_SEED runs the same again: exactly on the embedded server, whose clock
// is set, and nearly so on a real one.
func init() {
	checks := 30
	if n, err := strconv.Atoi(os.Getenv("LEASEHOLD_ROUNDS")); err == nil {
		checks *= max(1, n)
	}
	_ = flag.Set("rapid.checks", strconv.Itoa(checks))
	_ = flag.Set("rapid.nofailfile", "true") // the seed does
	_ = flag.Set("rapid.steps", "60")
	_ = flag.Set("rapid.shrinktime", "20s")
	_ = flag.Set("rapid.seed", redistest.RapidSeed())
}

var scripts = map[string]*redis.Script{
	"enter": redis.NewScript(luascripts.TotalsEnter()), "leave": redis.NewScript(luascripts.TotalsLeave()),
	"ask": redis.NewScript(luascripts.TotalsAsk()), "renew": redis.NewScript(luascripts.TotalsRenew()),
	"set": redis.NewScript(luascripts.TotalsSetLimit()), "revoke": redis.NewScript(luascripts.TotalsRevoke()),
}

// moment is the server's clock as a script may have seen it: in µs by TIME, and
// in ms as keys expire, which on real servers is read when the script begins.
type moment struct{ us, key int64 }

// server is a server with one family.
type server struct {
	rdb    redis.UniversalClient
	mini   *miniredis.Miniredis // nil = a real one, whose clock can't be set
	now    time.Time            // of mini
	prefix string
	inbox  *redis.PubSub
	rounds int
}

var handles = []string{strings.Repeat("a", 22), strings.Repeat("b", 22), strings.Repeat("c", 22) + "~host"}

func newServer(t *testing.T, target redistest.Target) *server {
	t.Helper()
	s := &server{rdb: target.Client(t), mini: target.Mini, prefix: redistest.Name(t)}
	s.inbox = s.rdb.Subscribe(t.Context(), s.channels()...)
	t.Cleanup(func() { _ = s.inbox.Close() })
	for range handles {
		redistest.Must(s.inbox.Receive(t.Context()))(t)
	}
	return s
}

func (s *server) channels() []string {
	var all []string
	for _, h := range handles {
		all = append(all, keys.Family{Prefix: s.prefix}.Inbox(h))
	}
	return all
}

// fresh names the keys of a family that no sequence before has used.
func (s *server) fresh() []string {
	s.rounds++
	if s.mini != nil {
		s.mini.FlushAll()
		s.now = time.UnixMilli(1_750_000_000_123)
		s.mini.SetTime(s.now)
	}
	r := keys.Family{Prefix: s.prefix, Kind: keys.Semaphore, Name: strconv.Itoa(s.rounds)}.Together()
	var all []string
	for _, part := range parts {
		all = append(all, r.Part(part))
	}
	return all
}

// machine is one random sequence of calls.
type machine struct {
	*server
	*rapid.T
	names  []string // of the keys, in the order of parts
	model  *family
	issued []*request
	calls  int
	seq    int
	set    []setting

	revoked map[string]buried // requests, by member
	aged    int64             // ms that passed, where the clock can't be set
}

// run makes a call and compares what it answers, publishes and leaves behind with
// what the reference does. clockAt is which integer of the reply is the clock, -1
// where it has none that often.
func (m *machine) run(script, what string, clockAt int, predict func(*family) []int64, args ...any) []int64 {
	m.calls++
	before := m.clock()
	names := m.names[:8]
	switch script {
	case "renew":
		names = names[:2]
	case "revoke":
		names = m.names
	}
	got, err := scripts[script].Run(context.Background(), m.rdb, names, args...).Int64Slice()
	if reason, revoked := call.Revoked(err); revoked {
		n, _ := strconv.ParseInt(reason, 10, 64)
		got, clockAt = []int64{revokedReply, n}, -1
		if b := m.revoked[args[0].(string)]; n != b.reason {
			m.Fatalf("%s was told that it was revoked for %d; it was for %d", args[0], n, b.reason)
		}
	} else if err != nil {
		m.Fatalf("call %d, %s: %v", m.calls, what, err)
	}
	m.Logf("%d  %s  ->  %v", m.calls, what, got)
	after, cells, sent := m.read()
	told := int64(0)
	if clockAt >= 0 && clockAt < len(got) {
		if told = got[clockAt]; told < before || told > after {
			m.Fatalf("call %d, %s: it answers with the time %d; it was made between %d and %d", m.calls, what, told, before, after)
		}
	}
	differ := ""
	for _, at := range m.moments(before, after, told) {
		next := m.model.clone()
		next.us, next.now, next.sent = at.us, at.us/1000, nil
		for _, c := range next.cells {
			if c.exists() && c.until > 0 && m.gone(c.until, at) {
				c.clear()
			}
		}
		want := next.unlessRevoked(script, args, predict(next))
		next.settle(cells, before/1000, after/1000, m.mini == nil)
		if d := difference(got, want, sent, next.sent, cells, next.cells); d == "" {
			m.model = next
			return got
		} else if !strings.HasSuffix(differ, d) {
			differ += fmt.Sprintf("\nrun at %d µs, with keys as of %d ms:%s", at.us, at.key, d)
		}
	}
	m.Fatalf("after %d calls, %s, between %d and %d µs:%s\nbefore it%s", m.calls, what, before, after, differ, described(m.model.cells))
	return nil
}

// settle takes over what the clock of a real server decided: whether a key has ended
// by the time that it is read.
func (f *family) settle(cells []*cell, before, after int64, real bool) {
	for i, c := range f.cells {
		if real && c.exists() && !cells[i].exists() && c.until >= before-2 && c.until <= after+1 {
			c.clear()
		}
	}
}

func difference(got, want []int64, sent, wantSent []string, cells, wantCells []*cell) string {
	switch {
	case !slices.Equal(got, want):
		return fmt.Sprintf("\n  answered %v\n  want     %v", got, want) + "\n  left" + described(cells) + "\n  want" + described(wantCells)
	case !slices.Equal(sent, wantSent):
		return fmt.Sprintf("\n  published %q\n  want      %q", sent, wantSent)
	case described(cells) != described(wantCells):
		return "\n  left" + described(cells) + "\n  want" + described(wantCells)
	}
	return ""
}

// read is the state of the server at one moment: its clock, the keys, and what
// was published since the last read, which a message "." to each handle ends.
func (m *machine) read() (us int64, cells []*cell, sent []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pipe := m.rdb.TxPipeline()
	clock := pipe.Time(ctx)
	cells = newCells()
	untils, sets := make([]*redis.Cmd, len(cells)), make([]*redis.ZSliceCmd, len(cells))
	for i := range cells[:7] {
		untils[i] = pipe.Do(ctx, "PEXPIRETIME", m.names[i])
		sets[i] = pipe.ZRangeWithScores(ctx, m.names[i], 0, -1)
	}
	untils[7] = pipe.Do(ctx, "PEXPIRETIME", m.names[7])
	hash := pipe.HGetAll(ctx, m.names[7])
	untils[8], untils[9] = pipe.Do(ctx, "PEXPIRETIME", m.names[8]), pipe.Do(ctx, "PEXPIRETIME", m.names[9])
	marks, audit := pipe.HGetAll(ctx, m.names[8]), pipe.XRange(ctx, m.names[9], "-", "+")
	for _, channel := range m.channels() {
		pipe.Publish(ctx, channel, ".")
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		m.Fatal(err)
	}
	for i, c := range cells {
		c.until, _ = untils[i].Int64()
		switch c.name {
		case "limits":
			c.texts = hash.Val()
			c.until++ // -1 = it never expires
			continue
		case "revoked":
			c.texts = marks.Val()
			continue
		case "audit":
			for _, e := range audit.Val() {
				word := func(name string) string { return fmt.Sprint(e.Values[name]) }
				c.entries = append(c.entries, auditEntry(word("id"), word("what"), word("permits"), word("label"), word("remains"), word("reason")))
			}
			continue
		}
		for _, z := range sets[i].Val() {
			score := z.Score
			if c.name == "holders" {
				score = math.Ceil(score) // the fraction is for listings
			}
			c.scores[z.Member.(string)] = score
		}
	}
	for ends := 0; ends < len(handles); {
		msg, err := m.inbox.ReceiveMessage(ctx)
		if err != nil {
			m.Fatal(err)
		}
		if msg.Payload == "." {
			ends++
			continue
		}
		sent = append(sent, msg.Channel[strings.LastIndex(msg.Channel, ":")+1:]+": "+msg.Payload)
	}
	return clock.Val().UnixMicro(), cells, sent
}

// clock is the server's, in µs.
func (m *machine) clock() int64 {
	if m.mini != nil {
		return m.now.UnixMicro()
	}
	t, err := m.rdb.Time(context.Background()).Result()
	if err != nil {
		m.Fatal(err)
	}
	return t.UnixMicro()
}

// gone says whether a key that lives until then has expired.
func (s *server) gone(until int64, at moment) bool {
	if s.mini == nil {
		return at.key > until
	}
	return at.us >= until*1000
}

// moments are the times at which a call between before and after may have run;
// told is the one that it answered with, 0 where it doesn't say.
func (s *server) moments(before, after, told int64) []moment {
	if s.mini != nil {
		return []moment{{before, before / 1000}}
	}
	var all []moment
	if told != 0 {
		for key := before/1000 - 1; key <= after/1000+1; key++ {
			all = append(all, moment{told, key})
		}
		slices.SortStableFunc(all, func(a, b moment) int {
			away := func(m moment) int64 { return max(m.key-told/1000, told/1000-m.key) }
			return int(away(a) - away(b))
		})
		return all
	}
	for ms := before / 1000; ms <= after/1000; ms++ {
		all = append(all, moment{max(before, ms*1000), ms})
	}
	return all
}

// pass lets time pass: to just before, at or just after something happens by
// itself, or by any time.
func (m *machine) pass(t *rapid.T) {
	now := m.clock()
	d := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(1_000, 10_000_000)).Draw(t, "µs")
	if times := m.model.times(); len(times) > 0 && rapid.IntRange(0, 3).Draw(t, "to a time") > 0 {
		i := rapid.IntRange(0, len(times)-1).Draw(t, "which")
		d = max(0, times[i]*1000-now+rapid.SampledFrom([]int64{0, -1, 1, 1000, -1000}).Draw(t, "by"))
	}
	if d > 2*time.Hour.Microseconds() {
		return
	}
	m.elapse(d)
}

// times are the moments (ms) at which something changes by itself.
func (f *family) times() []int64 {
	var all []int64
	for _, c := range f.cells[:8] {
		if c.exists() && c.until > 0 {
			all = append(all, c.until)
		}
		for m, s := range c.scores {
			switch {
			case c.clock:
				all = append(all, int64(s), int64(s)-overdue)
			case c == f.turns && s >= harms:
				all = append(all, int64(s-harms)+heldUp)
			case c == f.turns && s >= charges && s < holds, c == f.turns && s < 0:
				all = append(all, int64(math.Abs(s)/32), int64(math.Abs(s)/32)+forgotten)
			}
			_ = m
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (m *machine) elapse(d int64) {
	m.Logf("   %v pass", time.Duration(d)*time.Microsecond)
	if m.mini != nil {
		// In whole ms: a key's time is kept more finely there than it tells.
		m.now = time.UnixMilli((m.clock() + d) / 1000)
		m.mini.SetTime(m.now)
		return
	}
	ms := d / 1000
	if err := m.rdb.Eval(context.Background(), aging, m.names[:7], ms).Err(); err != nil {
		m.Fatal(err)
	}
	m.model.age(ms)
	m.aged += ms
	now, cells, _ := m.read()
	for i, c := range m.model.cells {
		if c.until <= now/1000 && !cells[i].exists() {
			c.clear()
		}
	}
}

// age brings nearer what is to come, where the clock can't be set: all but the marks of
// what was revoked, which last for a month.
func (f *family) age(ms int64) {
	for _, c := range f.cells[:8] {
		for m, s := range c.scores {
			switch {
			case c.clock:
				c.scores[m] -= float64(ms)
			case c == f.turns && s >= holds:
				c.scores[m] -= float64(ms)
			case c == f.turns && s >= charges:
				c.scores[m] -= float64(ms * 32)
			case c == f.turns && s < 0:
				c.scores[m] += float64(ms * 32)
			}
		}
		if c.exists() && c.until > 0 {
			c.until -= ms
		}
	}
}

const aging = `
for i, key in ipairs(KEYS) do
  local at = redis.call('PEXPIRETIME', key)
  if at >= 0 then
    local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for j = 1, #all, 2 do
      local score = tonumber(all[j + 1])
      if i == 1 or i == 5 then score = score - ARGV[1] end
      if i == 7 and score >= 2^50 then
        score = score - ARGV[1]
      elseif i == 7 and score >= 2^44 then
        score = score - ARGV[1] * 32
      end
      if i == 7 and score < 0 then score = score + ARGV[1] * 32 end
      redis.call('ZADD', key, score, all[j])
    end
    redis.call('PEXPIREAT', key, at - ARGV[1])
  end
end
return 1`
