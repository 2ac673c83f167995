package singleflight

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// []byte and string are stored as they are, behind the envelope. A Codec sees each value, strings too.
func TestRawValues(t *testing.T) {
	each(t, func(f *fixture) {
		s, _ := openOf[string](f)
		b, _ := openOf[[]byte](f)
		fetch(f, f.Context(), s, "string", gives("as it is")).Got()
		fetch(f, f.Context(), b, "bytes", func(context.Context) ([]byte, error) { return []byte("as it is"), nil }).Got()
		for _, key := range []string{"string", "bytes"} {
			raw := f.RDB.Get(f.Context(), f.Part(key, "value")).Val()
			head, ok := strings.CutSuffix(raw, "\xc4\x08as it is")
			redistest.Check(f, ok && len(head) == 60, "%s is stored as %q", key, raw)
		}
		fetch(f, f.Context(), s, "bytes", never(f)).wantValue("as it is")
		g, _ := f.open(func(c *singleflight.Config[string]) { c.Codec, c.Schema = &jsonCodec{}, 0x2a })
		fetch(f, f.Context(), g, "k", gives("v")).Got()
		raw := f.RDB.Get(f.Context(), f.Part("k", "value.0000002a")).Val()
		redistest.Check(f, strings.HasSuffix(raw, `"v"`), "stored as %q", raw)
		fetch(f, f.Context(), g, "k", never(f)).want("v", singleflight.Cached)
	})
}

// jsonCodec is a codec that fails or panics where it is told to.
type jsonCodec struct {
	marshal, unmarshal func() error // before the work; nil = nothing
}

func (c *jsonCodec) Marshal(v any) ([]byte, error) {
	if c.marshal != nil {
		if err := c.marshal(); err != nil {
			return nil, err
		}
	}
	return json.Marshal(v)
}

func (c *jsonCodec) Unmarshal(data []byte, v any) error {
	if c.unmarshal != nil {
		if err := c.unmarshal(); err != nil {
			return err
		}
	}
	return json.Unmarshal(data, v)
}

// blind makes a group decode nothing.
func blind(c *singleflight.Config[string]) {
	c.Codec = &jsonCodec{unmarshal: func() error { return errors.New("sees nothing") }}
}

// A caller that can't decode what others load, however often it looks, has its own
// loader's value in the end. It stores nothing over what they can read.
func TestCallerThatDecodesNothingStoresNothing(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(blind, func(c *singleflight.Config[string]) { c.Schema = 1 })
		other, _ := f.open(func(c *singleflight.Config[string]) { c.Schema = 1 })
		o := newOrigin(f)
		var theirs *loading
		begin := func() {
			redistest.WantErr(f, other.Invalidate(f.Context(), "k"))
			_, theirs = begin(f, f.Context(), other, "k", o, o.load)
		}
		begin()
		own := fetch(f, f.Context(), g, "k", gives("own"))
		last := ""
		for i := 1; !own.Ended(); i++ {
			redistest.CheckNow(f, i <= 10, "it looks for ever")
			synctest.Wait()
			wire.Stall("load enter") // until they load again
			last = fmt.Sprint("theirs ", i)
			theirs.returns(last)
			if !own.Ended() {
				begin()
			}
			wire.Unstall()
			synctest.Wait()
		}
		own.want("own", singleflight.Loaded)
		fetch(f, f.Context(), other, "k", never(f)).want(last, singleflight.Cached)
		redistest.Expect(f, wire.Sent("load publish"), 0, "%d results were published")
	})
}

// Two schemas of a key, and two versions of a type, have a value each: neither reads, overwrites or waits for the
// other's. Invalidate reaches both.
func TestSchemasSideBySide(t *testing.T) {
	each(t, func(f *fixture) {
		g, _ := f.open(func(c *singleflight.Config[string]) { c.Schema = 1 })
		next, _ := f.open(func(c *singleflight.Config[string]) { c.Schema = math.MaxUint32 })
		fetch(f, f.Context(), g, "k", gives("1")).Got()
		wantNothing(f, next, "k")
		redistest.Check(f, !inspect(f, next, "k").Cached, "Cached is true")
		another := redis.Z{Score: math.MaxInt32 * 1e6, Member: "1"} // spelling of the first one, from somebody's hand
		redistest.NoError(f, f.RDB.ZAdd(f.Context(), f.Part("k", "schemas"), another).Err())
		for range 2 {
			fetch(f, f.Context(), next, "k", gives("2")).want("2", singleflight.Loaded)
			fetch(f, f.Context(), next, "k", never(f)).want("2", singleflight.Cached)
			fetch(f, f.Context(), g, "k", never(f)).want("1", singleflight.Cached)
			redistest.WantErr(f, g.Invalidate(f.Context(), "k"))
			for _, of := range []*singleflight.Group[string]{g, next} {
				wantNothing(f, of, "k")
			}
			fetch(f, f.Context(), g, "k", gives("1")).Got()
		}
		redistest.Expect(f, next.Stats().Undecodable, 0, "Undecodable is %v")
		type a struct{ N int }
		type b struct{ Name string }
		ga, _ := openOf[a](f)
		gb, _ := openOf[b](f)
		for range 2 {
			redistest.Gives(ga.Do(f.Context(), "v", func(context.Context) (a, error) { return a{1}, nil }))(f, a{1})
			redistest.Gives(gb.Do(f.Context(), "v", func(context.Context) (b, error) { return b{"y"}, nil }))(f, b{"y"})
		}
		sa, sb := ga.Stats(), gb.Stats()
		redistest.Check(f, sa.Loads == 1 && sb.Loads == 1 && sa.Undecodable+sb.Undecodable == 0, "%+v, %+v", sa, sb)
	})
}

// Nothing set but what has to be: TTL with a spread of 0.05, no stale values, no failures remembered, a lease of 10 s.
func TestDefaults(t *testing.T) {
	bubble(t, func(f *fixture) {
		const ttl = 100 * time.Second
		g := redistest.Must(singleflight.New(f.Connect(&harness.Wire{Patience: clientPatience}), singleflight.Config[string]{Name: f.Family, TTL: ttl}))(f)
		defer harness.Close(f, g)
		_, l, o := f.loading(g, "loading")
		redistest.Expect(f, inspect(f, g, "loading").LeaseEndsIn, 10*time.Second, "the lease ends in %v")
		time.Sleep(10 * time.Minute) // no LoadTimeout, and the lease is renewed
		redistest.Check(f, !l.over() && o.loads.Load() == 1, "the load ended")
		l.returns(strings.Repeat("x", 1<<20)) // the largest there may be
		redistest.Check(f, inspect(f, g, "loading").Cached, "Cached is false")
		fetch(f, f.Context(), g, "large", gives(strings.Repeat("x", 1<<20+1))).Got()
		redistest.Check(f, !inspect(f, g, "large").Cached && g.Stats().TooLarge == 1, "%+v", g.Stats())
		fetch(f, f.Context(), g, "failing", fails(singleflight.ErrLoadTimeout)).Failed()
		fetch(f, f.Context(), g, "nothing", fails(singleflight.ErrNotFound)).Failed()
		for _, key := range []string{"failing", "nothing"} {
			wantIdle(f, g, key)
		}
		least, most := ttl, ttl
		for i := range 150 {
			key := fmt.Sprint(i)
			fetch(f, f.Context(), g, key, gives("v")).Got()
			s := inspect(f, g, key)
			least, most = min(least, s.FreshFor), max(most, s.FreshFor)
			redistest.CheckNow(f, s.KeptFor == s.FreshFor+time.Second || s.KeptFor == s.FreshFor.Truncate(time.Millisecond)+time.Second,
				"%+v", s)
		}
		redistest.Between(f, least, 95*time.Second, 96*time.Second, "the shortest TTL is %v")
		redistest.Between(f, most, 104*time.Second, 105*time.Second+time.Millisecond, "the longest TTL is %v")
	})
}

// TTLFor says how long each value is fresh, is asked once a load, and is not asked for what is no value.
func TestTTLFor(t *testing.T) {
	bubble(t, func(f *fixture) {
		asked := map[string]int{}
		g, _ := f.open(func(c *singleflight.Config[string]) {
			c.TTL, c.Jitter, c.ErrorTTL = time.Minute, -1, time.Second
			c.TTLFor = func(key, v string) time.Duration {
				asked[key+"="+v]++
				return map[string]time.Duration{"short": time.Second, "zero": 0, "never": -1, "sub": 1, "ever": 1 << 62}[v]
			}
		})
		for v, want := range map[string]time.Duration{
			"short": time.Second, "zero": time.Minute, "never": 0, "sub": time.Millisecond, "ever": tenYears,
		} {
			fetch(f, f.Context(), g, v, gives(v)).wantValue(v)
			s := inspect(f, g, v)
			redistest.Check(f, s.FreshFor == want && s.Cached == (v != "never"), "%s: %+v, want %v", v, s, want)
		}
		fetch(f, f.Context(), g, "failing", fails(singleflight.ErrNotFound)).Failed()
		want := map[string]int{"short=short": 1, "zero=zero": 1, "never=never": 1, "sub=sub": 1, "ever=ever": 1}
		redistest.Check(f, maps.Equal(asked, want), "asked for %v, want %v", asked, want)
	})
}

// A value that TTLFor forbids to store is handed to all waiters, of any process and of any size that could be
// stored, and loaded again by the caller that comes later.
func TestValueThatTTLForForbidsToStoreIsHandedOut(t *testing.T) {
	some(t, func(f *fixture) {
		for key, value := range map[string]string{"small": "v", "large": strings.Repeat("v", 100_000)} {
			mod := func(c *singleflight.Config[string]) { c.TTLFor = func(string, string) time.Duration { return -1 } }
			g, other, _ := f.two(mod)
			first, l, _ := f.loading(g, key)
			waits := fetch(f, f.Context(), other, key, never(f))
			redistest.Eventually(f, "the other", func() bool { return f.Queued(key) == 1 })
			l.returns(value)
			first.want(value, singleflight.Loaded)
			waits.want(value, singleflight.Shared)
			wantIdle(f, g, key)
			fetch(f, f.Context(), other, key, gives("new")).want("new", singleflight.Loaded)
		}
	})
}

// A value that is too large is returned in the process that loaded it, and logged; others load for themselves,
// without waiting for each other, until the mark ends after a second.
func TestTooLargeValueStaysInItsProcess(t *testing.T) {
	bubble(t, func(f *fixture) {
		var log bytes.Buffer
		mod := func(c *singleflight.Config[string]) {
			c.MaxValueBytes, c.ErrorTTL, c.StaleFor = 10, time.Minute, time.Minute
		}
		g, _ := f.open(mod, func(c *singleflight.Config[string]) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		first, l, o := f.loading(g, "k")
		joins := fetch(f, f.Context(), g, "k", never(f))
		var others []*pending[string]
		for range 2 {
			other, _ := f.open(mod)
			others = append(others, fetch(f, f.Context(), other, "k", o.load), fetch(f, f.Context(), other, "k", o.load))
		}
		synctest.Wait()
		large := strings.Repeat("x", 11)
		l.returns(large)
		first.want(large, singleflight.Loaded)
		joins.want(large, singleflight.Shared)
		l1, l2 := o.next(f), o.next(f) // both at once, one a process
		l1.returns(large + "1")
		l2.returns(large + "2")
		for _, p := range others {
			r := p.Got()
			redistest.Check(f, len(r.Value) == 12, "%+v", r)
		}
		redistest.Expect(f, o.loads.Load(), 3, "%d loads")
		wantIdle(f, g, "k")
		synctest.Wait()
		text := log.String()
		redistest.Check(f, strings.Count(text, "too large") == 1 && strings.Contains(text, "bytes=11") && g.Stats().TooLarge == 1, "%s, %+v", text, g.Stats())
		time.Sleep(time.Second)
		fetch(f, f.Context(), g, "k", gives("it fits")).Got()
		redistest.Check(f, inspect(f, g, "k").Cached, "the mark is there yet")
	})
}

// A large value takes longer to send, and its publication has longer. One that takes too long all the same is logged:
// else nobody would learn that such values are never cached.
func TestPublicationOfALargeValue(t *testing.T) {
	for what, slow := range map[string]time.Duration{"in time": 700 * time.Millisecond, "too late": 2 * time.Second} {
		subBubble(t, what, func(f *fixture) {
			var log bytes.Buffer
			rdb := f.Connect(&harness.Wire{})
			rdb.AddHook(redistest.Around(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				for _, cmd := range cmds { // twice, because the server does not know the script
					if args := fmt.Sprint(cmd.Args()...); len(args) > 1<<20 {
						time.Sleep(slow)
					}
				}
				return send()
			}))
			g := openOn(f, rdb, func(c *singleflight.Config[string]) {
				c.MaxValueBytes, c.Logger = 4<<20, slog.New(slog.NewTextHandler(&log, nil))
			})
			first, l, _ := f.loading(g, "k")
			joins := fetch(f, f.Context(), g, "k", never(f))
			synctest.Wait()
			began, large := time.Now(), strings.Repeat("x", 2<<20)
			l.returns(large)
			first.want(large, singleflight.Loaded)
			redistest.AtMost(f, time.Since(began), 2100*time.Millisecond, "the first caller waited for %v")
			if what == "in time" {
				joins.want(large, singleflight.Shared)
				wantStored(f, g, "k", large)
			} else {
				redistest.WantErr(f, joins.Failed(), leasehold.ErrUnavailable)
			}
			synctest.Wait()
			text := log.String()
			redistest.Check(f, strings.Contains(text, "bytes=2097152") == (what == "too late"), "%s is logged: %.500s", what, text)
		})
	}
}

// A newer value that may not be stored ends the stale one that is there: else that would be served for as long as
// StaleFor says, and the newer one to nobody. Put ends what is cached, too, and says that it stored nothing.
func TestPutAndLoadOfWhatIsNotStored(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, _ := f.open(func(c *singleflight.Config[string]) {
			c.TTL, c.StaleFor, c.MaxValueBytes = time.Second, time.Hour, 10
			c.TTLFor = func(_, v string) time.Duration { return map[string]time.Duration{"new": -1}[v] }
		})
		for _, newer := range []string{"new", "is too large"} {
			put(f, g, newer, "old")
			time.Sleep(2 * time.Second)
			fetch(f, f.Context(), g, newer, gives(newer)).want("old", singleflight.Stale)
			synctest.Wait() // by now the newer one has been loaded
			fetch(f, f.Context(), g, newer, gives(newer)).wantValue(newer)
			put(f, g, newer, "there")
			err := g.Put(f.Context(), newer, newer)
			redistest.WantErr(f, err, singleflight.ErrNotStored)
			redistest.Check(f, errors.Is(err, singleflight.ErrTooLarge) == (newer != "new"), "%v", err)
			wantNothing(f, g, newer)
		}
	})
}

// garbage is what may stand where an entry should: by accident, by another program, or by an attacker.
func garbage(valid string) map[string]string {
	all := map[string]string{
		"text": "garbage", "one byte": "\x00", "long": strings.Repeat("garbage", 10_000), "40 hex digits": strings.Repeat("0123456789", 4),
		"cut short": valid[:len(valid)-1], "its head": valid[:envelope.HeadLen], "more behind it": valid + "x", "another byte": valid[:60] + "?" + valid[61:],
	}
	for name, e := range map[string]envelope.Envelope{
		"a failure": {Kind: envelope.Failure, Payload: "boom"}, "too large": {Kind: envelope.TooLarge},
		"another schema": {Kind: envelope.Value, Schema: 77, Payload: "\xa1v", Fresh: time.Hour, Kept: time.Hour},
	} {
		prefix, suffix := e.Encode()
		all[name] = fmt.Sprint(prefix, time.Now().UnixMicro(), suffix)
	}
	return all
}

// An entry that is none is a miss: loaded once and replaced, for single calls and in a batch, counted, never an error.
// A remembered failure that is none is replaced, too.
func TestGarbageIsAMiss(t *testing.T) {
	each(t, func(f *fixture) {
		g, _ := f.open(func(c *singleflight.Config[string]) { c.ErrorTTL = time.Minute })
		fetch(f, f.Context(), g, "valid", gives("a value that is valid")).Got()
		valid := f.RDB.Get(f.Context(), f.Part("valid", "value")).Val()
		undecodable, loads := int64(0), int64(1)
		for what, raw := range garbage(valid) {
			for i, ask := range []func() (string, error){
				func() (string, error) { return g.Do(f.Context(), what, gives("new")) },
				func() (string, error) {
					m, err := g.DoMany(f.Context(), []string{what}, func(context.Context, []string) (map[string]string, error) {
						return map[string]string{what: "new"}, nil
					})
					return m[what], err
				},
			} {
				f.RDB.Set(f.Context(), f.Part(what, "value"), raw, time.Minute)
				wantNothing(f, g, what)
				v, err := ask()
				redistest.CheckNow(f, v == "new" && err == nil, "%s, %d: %q, %v", what, i, v, err)
				fetch(f, f.Context(), g, what, never(f)).want("new", singleflight.Cached)
				if loads++; what != "another schema" {
					undecodable += 2
				}
			}
		}
		for key, raw := range map[string]string{"short failure": "garbage", "long failure": strings.Repeat("x", 100_000)} {
			f.RDB.Set(f.Context(), f.Part(key, "failure"), raw, time.Minute)
			fetch(f, f.Context(), g, key, gives("v")).want("v", singleflight.Loaded)
			redistest.Expect(f, f.RDB.Exists(f.Context(), f.Part(key, "failure")).Val(), 0, "it is there yet")
			undecodable, loads = undecodable+1, loads+1
		}
		s := g.Stats()
		redistest.Check(f, s.Undecodable == undecodable && s.Errors == 0 && s.Loads == loads, "%+v, want %d", s, undecodable)
	})
}
