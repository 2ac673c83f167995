package scripts_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
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
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// The text of a failure names the seed, with which -rapid.seed or LEASEHOLD_SEED runs the same again.
func init() {
	_ = flag.Set("rapid.nofailfile", "true") // the seed does
	_ = flag.Set("rapid.steps", "60")
	_ = flag.Set("rapid.shrinktime", "20s")
	_ = flag.Set("rapid.seed", redistest.RapidSeed())
}

// modelServer is a server whose clock stands still between the calls.
type modelServer struct {
	rdb    redis.UniversalClient
	client *call.Client
	mini   *miniredis.Miniredis // nil = a real one
	wall   *redistest.Clock     // of a real one
	now    time.Time
	full   bool // its memory has run out
	prefix string
	inbox  *redis.PubSub
	checks int
}

var modelHandles = []string{strings.Repeat("a", 22), strings.Repeat("b", 22), strings.Repeat("c", 22) + "~host", strings.Repeat("d", 22) + "^", strings.Repeat("e", 22) + "^~keeps"}

// eachModelServer runs fn on an embedded server, and on a server of each version. LEASEHOLD_ROUNDS multiplies
// how many random sequences they meet.
func eachModelServer(t *testing.T, fn func(t *testing.T, s *modelServer)) {
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		s := &modelServer{mini: target.Mini, prefix: redistest.Name(t)}
		checks := 10 // random sequences
		if s.mini != nil {
			checks = redistest.Full(30, 15) // they end before the others begin
		}
		_ = flag.Set("rapid.checks", strconv.Itoa(checks*harness.Rounds(t, 1)))
		if s.mini != nil {
			s.rdb = clientOf(t, target)
		} else {
			t.Parallel()
			var srv *redistest.Server
			srv, s.wall = redistest.StartWithClock(t, target.Version, "--enable-debug-command", "yes")
			s.rdb = srv.Client()
			// By itself the server may end a key one ms sooner than a call that finds it over.
			redistest.WantErr(t, s.rdb.Do(t.Context(), "DEBUG", "SET-ACTIVE-EXPIRE", 0).Err())
		}
		s.client = redistest.Must(call.NewClient(s.rdb))(t)
		s.inbox = s.rdb.Subscribe(context.Background(), s.channels()...)
		t.Cleanup(func() { _ = s.inbox.Close() })
		for range modelHandles {
			redistest.Must(s.inbox.Receive(context.Background()))(t)
		}
		fn(t, s)
	})
}

func (s *modelServer) channels() []string {
	var all []string
	for _, h := range modelHandles {
		all = append(all, keys.Family{Prefix: s.prefix}.Inbox(h))
	}
	return all
}

// fresh names a resource, on a server that is empty again.
func (s *modelServer) fresh(t *rapid.T, kind keys.Kind) keys.Resource {
	s.checks++
	if s.full {
		s.limitMemory(t, false)
	}
	must("", s.rdb.FlushAll(context.Background()).Err())(t)
	s.setClock(time.UnixMilli(1_750_000_000_123))
	return must(keys.Family{Prefix: s.prefix, Kind: kind, Name: "model"}.Resource(strconv.Itoa(s.checks)))(t)
}

func (s *modelServer) limitMemory(t *rapid.T, full bool) {
	s.full = full
	must("", s.rdb.ConfigSet(context.Background(), "maxmemory", strconv.FormatInt(oneIf(full), 10)).Err())(t)
}

// setClock sets the server's clock.
func (s *modelServer) setClock(now time.Time) {
	if s.now = now; s.mini == nil {
		s.wall.Stop(now)
		return
	}
	s.now = now.Truncate(time.Millisecond) // a key's time is kept more finely there than it tells
	s.mini.SetTime(s.now)
}

// us is the server's clock.
func (s *modelServer) us() int64 { return s.now.UnixMicro() }

// gone says whether a key that lives until then (ms) has expired.
func (s *modelServer) gone(until, now int64) bool {
	return now > until || now == until && s.mini != nil
}

// reference is what permits, families with a total, and flights have in common.
type reference interface {
	common() *base
	times() []int64
	revoke(member, id, reason string) outcome
}

func (b *base) common() *base { return b }

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
}

// machine begins a sequence on keys that part names.
func (s *modelServer) machine(t *rapid.T, model reference, part func(name string) string) machine {
	m := machine{modelServer: s, T: t, model: model, tickets: map[uint64]int64{}}
	for _, c := range model.common().cells {
		m.names = append(m.names, part(c.name))
	}
	m.read() // what a sequence that failed has left
	return m
}

// read is the state of the server: the keys, and what was published since the last read,
// which a message "." to each handle ends.
func (m *machine) read() (cells []*cell, sent []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pipe := m.rdb.Pipeline()
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
	return cells, sent
}
