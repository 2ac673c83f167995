package singleflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A value that may not be stored ends what was cached, and Put says so.
func TestPutThatIsNotStored(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open(func(c *singleflight.Config[string]) {
			c.MaxValueBytes = 100
			c.TTLFor = func(_ string, v string) time.Duration {
				if v == "secret" {
					return -1
				}
				return 0
			}
		})
		for _, v := range []string{"secret", strings.Repeat("large", 100)} {
			redistest.WantErr(f, g.Put(f.Context(), "k", "there"))
			err := g.Put(f.Context(), "k", v)
			redistest.WantErr(f, err, singleflight.ErrNotStored)
			redistest.Check(f, errors.Is(err, singleflight.ErrTooLarge) == (v != "secret"), "%v", err)
			wantNothing(f, g, "k")
		}
	})
}

// A Put may have run if its reply is lost. It is not sent again: its second run could undo a Put
// that was answered in between.
func TestPutWhoseReplyIsLost(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		f.teach()
		g := f.openVia(p)
		other, _ := f.open()
		puts := harness.Does("load put")
		lost := p.EatReply(puts, 1)
		written := harness.Begin(f, func() error { return g.Put(f.Context(), "k", "first") })
		redistest.Get(f, "the lost reply", lost.Fired())
		put(f, other, "k", "second")
		redistest.WantErr(f, written.Failed(), leasehold.ErrUnavailable)
		redistest.Expect(f, peek(f, g, "k").Value, "second", "the value is %q")
	})
}

// Sentinels of Config.Errors are found in every process that shares a failure.
func TestSentinelsCross(t *testing.T) {
	some(t, func(f *fixture) {
		gone, broken := errors.New("sql: no rows"), errors.New("broken")
		mod := func(c *singleflight.Config[string]) { c.Errors, c.ErrorTTL = []error{gone, broken}, time.Minute }
		g, other := f.two(mod)
		redistest.WantErr(f, fetch(f, f.Context(), g, "k", fails(fmt.Errorf("user 7: %w", gone))).Failed(), gone)
		err := fetch(f, f.Context(), other, "k", never(f)).Failed()
		redistest.WantErr(f, err, gone, redistest.Not(broken), redistest.Says("user 7: sql: no rows"))
		remote, ok := errors.AsType[*singleflight.RemoteError](err)
		redistest.Check(f, ok && remote.Text == "user 7: sql: no rows", "%+v", remote)
		redistest.Expect(f, inspect(f, other, "k").Failure, "user 7: sql: no rows", "Failure is %v")
	})
}

// Two versions of a type do not read each other's bytes, and both have what they load.
func TestVersionsOfATypeSideBySide(t *testing.T) {
	type a struct {
		N int
		S string
	}
	type b struct{ Name string }
	some(t, func(f *fixture) {
		ga, _ := openOf[a](f)
		gb, _ := openOf[b](f)
		for range 2 {
			redistest.Gives(ga.Do(f.Context(), "k", func(context.Context) (a, error) { return a{1, "x"}, nil }))(f, a{1, "x"})
			redistest.Gives(gb.Do(f.Context(), "k", func(context.Context) (b, error) { return b{"y"}, nil }))(f, b{"y"})
		}
		sa, sb := ga.Stats(), gb.Stats()
		redistest.Check(f, sa.Loads == 1 && sb.Loads == 1 && sa.Undecodable+sb.Undecodable == 0, "%+v, %+v", sa, sb)
	})
}

// An Invalidate that fails names the keys that may have been dropped or not; it
// tries for 3 s, and returns at once when its ctx ends.
func TestInvalidateFails(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open()
		fetch(f, f.Context(), g, "a", gives("v")).Got()
		wire.Cut()
		began := time.Now()
		err := g.Invalidate(f.Context(), "a", "b")
		redistest.WantErr(f, err, leasehold.ErrUnavailable, harness.ErrCut)
		redistest.WantText(f, err, "singleflight: invalidate "+f.Family+"/a", "singleflight: invalidate "+f.Family+"/b")
		redistest.WantErr(f, keysError(f, err, "a", "b")["b"], leasehold.ErrUnavailable, harness.ErrCut)
		redistest.Between(f, time.Since(began), 3*time.Second, 4*time.Second, "tried for %v")
		began = time.Now()
		ctx := f.within(time.Second)
		err = g.Invalidate(ctx, "a", "b")
		redistest.WantErr(f, err, context.DeadlineExceeded, leasehold.ErrUnavailable, redistest.Says(f.Family+"/a", f.Family+"/b"))
		redistest.Expect(f, time.Since(began), time.Second, "returned after %v")
		wire.Heal()
		go func() { time.Sleep(time.Second); wire.Heal() }()
		wire.Cut()
		redistest.NoError(f, g.Invalidate(f.Context(), "a")) // it was tried again
		wantNothing(f, g, "a")
		// What the server refuses for one key is that key's error alone.
		f.RDB.Set(f.Context(), f.Part("bad", "holders"), "a string", time.Minute)
		fetch(f, f.Context(), g, "good", gives("v")).Got()
		err = g.Invalidate(f.Context(), "good", "bad")
		redistest.WantErr(f, err, leasehold.ErrUnavailable)
		redistest.WantText(f, keysError(f, err, "bad")["bad"], f.Family+"/bad", "WRONGTYPE")
		redistest.Check(f, !strings.Contains(err.Error(), "/good"), "%v", err)
		wantNothing(f, g, "good")
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

// Entries bear the server's time, and ages are told by it: whatever the clocks of the processes say.
func TestAgesAreByTheServersClock(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		subBubble(t, off.String(), func(f *fixture) {
			mod := func(c *singleflight.Config[string]) { c.TTL, c.Jitter, c.StaleFor = 10*time.Second, -1, time.Minute }
			at := time.Now().Add(off)
			f.Server.SetTime(at) // stands from here on
			g, _ := f.open(mod)
			fetch(f, f.Context(), g, "k", gives("v")).want("v", singleflight.Loaded)
			raw := f.RDB.Get(f.Context(), f.Part("k", "value")).Val()
			e, err := envelope.Decode(raw)
			redistest.Check(f, err == nil && e.Published == at.UnixMicro(), "published at %v, %v", time.UnixMicro(e.Published), err)
			newcomer, _ := f.open(mod)
			for _, h := range []*singleflight.Group[string]{g, newcomer} {
				r := fetch(f, f.Context(), h, "k", never(f)).Got()
				redistest.Check(f, r.Source == singleflight.Cached && r.Age == 0, "%+v", r)
			}
			time.Sleep(4 * time.Second)
			r := fetch(f, f.Context(), g, "k", never(f)).Got() // its age is by the last reply, and the time since
			redistest.Check(f, r.Source == singleflight.Cached && r.Age == 4*time.Second, "%+v", r)
			time.Sleep(7 * time.Second)
			redistest.Expect(f, fetch(f, f.Context(), g, "k", gives("new")).Got().Source, singleflight.Stale, "it came from %v")
		})
	}
}
