package scripts_test

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
)

// The model tests run so many random sequences a server; LEASEHOLD_ROUNDS multiplies it. The text of a failure names
// the seed, with which -rapid.seed or LEASEHOLD_SEED runs the same again: exactly on the embedded server, whose clock
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

// moment is the server's clock as a script may have seen it: in µs by TIME, and
// in ms as keys expire, which on real servers is read when the script begins.
type moment struct{ us, key int64 }

// modelServer is a server, and the reference that goes along with it.
type modelServer struct {
	rdb    redis.UniversalClient
	client *call.Client
	mini   *miniredis.Miniredis // nil = a real one, whose clock can't be set
	now    time.Time            // of mini
	prefix string
	inbox  *redis.PubSub
	checks int
}

var modelHandles = []string{strings.Repeat("a", 22), strings.Repeat("b", 22), strings.Repeat("c", 22) + "~host", strings.Repeat("d", 22) + "^", strings.Repeat("e", 22) + "^~keeps"}

func newModelServer(t *testing.T, target redistest.Target) *modelServer {
	t.Helper()
	s := &modelServer{rdb: target.Client(t), mini: target.Mini, prefix: redistest.Name(t)}
	var err error
	if s.client, err = call.NewClient(s.rdb); err != nil {
		t.Fatal(err)
	}
	s.inbox = s.rdb.Subscribe(context.Background(), s.channels()...)
	t.Cleanup(func() { _ = s.inbox.Close() })
	for range modelHandles {
		redistest.Must(s.inbox.Receive(context.Background()))(t)
	}
	return s
}

func (s *modelServer) channels() []string {
	var all []string
	for _, h := range modelHandles {
		all = append(all, keys.Family{Prefix: s.prefix}.Inbox(h))
	}
	return all
}

// fresh names a resource that no sequence before has used.
func (s *modelServer) fresh(t *rapid.T, kind keys.Kind) keys.Resource {
	s.checks++
	if s.mini != nil {
		s.mini.FlushAll()
		s.now = time.UnixMilli(1_750_000_000_123)
		s.mini.SetTime(s.now)
	}
	r := must(keys.Family{Prefix: s.prefix, Kind: kind, Name: "model"}.Resource(strconv.Itoa(s.checks)))(t)
	return r
}

// reference is what permits, families with a total, and flights have in common.
type reference interface {
	common() *base
	fork() reference
	times() []int64
	age(ms int64)
}

func (b *base) common() *base { return b }

func (s *modelServer) real() bool { return s.mini == nil }

func described(cells []*cell) (s string) {
	for _, c := range cells {
		s += fmt.Sprintf("\n    %-8s %v", c.name, c)
	}
	return s
}

// machine is one random sequence of calls.
type machine struct {
	*modelServer
	*rapid.T
	names   []string // of the keys, in the order of the reference's cells
	model   reference
	issued  []*request
	tickets map[uint64]int64 // of the attempts that were queued once
	set     []settingCall
	calls   int

	revoked map[uint64]buried // requests, by sequence number
	aged    int64             // ms that passed, where the clock can't be set
}

// machine begins a sequence on keys that part names.
func (s *modelServer) machine(t *rapid.T, model reference, part func(name string) string) machine {
	m := machine{modelServer: s, T: t, model: model, revoked: map[uint64]buried{}, tickets: map[uint64]int64{}}
	for _, c := range model.common().cells {
		m.names = append(m.names, part(c.name))
	}
	m.read() // what a sequence that failed has left
	return m
}

// read is the state of the server at one moment: its clock, the keys, and what
// was published since the last read, which a message "." to each handle ends.
func (m *machine) read() (us int64, cells []*cell, sent []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pipe := m.rdb.TxPipeline()
	clock := pipe.Time(ctx)
	like := m.model.common().cells
	untils, sets, texts := make([]*redis.Cmd, len(like)), make([]*redis.ZSliceCmd, len(like)), make([]*redis.StringCmd, len(like))
	hashes, streams := make([]*redis.MapStringStringCmd, len(like)), make([]*redis.XMessageSliceCmd, len(like))
	for i, c := range like {
		untils[i] = pipe.Do(ctx, "PEXPIRETIME", m.names[i])
		switch {
		case c.scores != nil:
			sets[i] = pipe.ZRangeWithScores(ctx, m.names[i], 0, -1)
		case c.fields != nil:
			hashes[i] = pipe.HGetAll(ctx, m.names[i])
		case c.isStream:
			streams[i] = pipe.XRange(ctx, m.names[i], "-", "+")
		default:
			texts[i] = pipe.Get(ctx, m.names[i])
		}
	}
	for _, channel := range m.channels() {
		pipe.Publish(ctx, channel, ".")
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		m.Fatal(err)
	}
	for i, l := range like {
		c := &cell{name: l.name, clock: l.clock, isStream: l.isStream, exact: l.exact}
		c.until, _ = untils[i].Int64()
		switch {
		case l.fields != nil:
			c.fields = hashes[i].Val()
		case l.isStream:
			for _, e := range streams[i].Val() {
				word := func(name string) string { return fmt.Sprint(e.Values[name]) }
				c.entries = append(c.entries, auditEntry(word("id"), word("what"), word("permits"), word("label"), word("remains"), word("reason")))
			}
		case l.scores != nil:
			c.scores = map[string]float64{}
			for _, z := range sets[i].Val() {
				if !c.exact {
					z.Score = math.Ceil(z.Score) // the fraction is for listings
				}
				c.scores[z.Member.(string)] = z.Score
			}
		default:
			c.text, c.set = texts[i].Val(), texts[i].Err() == nil
		}
		cells = append(cells, c)
	}
	for ends := 0; ends < len(modelHandles); {
		msg := must(m.inbox.ReceiveMessage(ctx))(m)
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
	if !m.real() {
		return m.now.UnixMicro()
	}
	return must(m.rdb.Time(context.Background()).Result())(m).UnixMicro()
}

// gone says whether a key that lives until then has expired.
func (s *modelServer) gone(until int64, at moment) bool {
	if s.real() {
		return at.key > until
	}
	return at.us >= until*1000
}

// moments are the times at which a call between before and after may have run;
// told is the one that it answered with, 0 where it doesn't say.
func (s *modelServer) moments(before, after, told int64) []moment {
	if !s.real() {
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
