package singleflight

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

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
		all[name] = envelope.Join(prefix, time.Now().UnixMicro(), suffix)
	}
	return all
}

// An entry that is none is a miss: loaded once and replaced, for single calls and in a batch, counted, never an error.
func TestGarbageIsAMiss(t *testing.T) {
	each(t, func(f *fixture) {
		g, _ := f.open()
		fetch(f, f.Context(), g, "valid", gives("a value that is valid")).got()
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
				if v, err := ask(); v != "new" || err != nil {
					f.Fatalf("%s, %d: %q, %v", what, i, v, err)
				}
				fetch(f, f.Context(), g, what, never(f)).want("new", singleflight.Cached)
				if loads++; what != "another schema" {
					undecodable += 2
				}
			}
		}
		s := g.Stats()
		redistest.Check(f, s.Undecodable == undecodable && s.Errors == 0 && s.Loads == loads, "%+v, want %d", s, undecodable)
	})
}

// A remembered failure that is none doesn't stand in the way for ever.
func TestUndecodableFailureIsReplaced(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open(func(c *singleflight.Config[string]) { c.ErrorTTL = time.Minute })
		for i, raw := range []string{"garbage", strings.Repeat("x", 100_000)} {
			key := fmt.Sprint(i)
			f.RDB.Set(f.Context(), f.Part(key, "failure"), raw, time.Minute)
			fetch(f, f.Context(), g, key, gives("v")).want("v", singleflight.Loaded)
			redistest.Expect(f, f.RDB.Exists(f.Context(), f.Part(key, "failure")).Val(), 0, "it is there yet")
		}
		s := g.Stats()
		redistest.Check(f, s.Undecodable == 2, "%+v", s)
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
				r := fetch(f, f.Context(), h, "k", never(f)).got()
				redistest.Check(f, r.Source == singleflight.Cached && r.Age == 0, "%+v", r)
			}
			time.Sleep(4 * time.Second)
			r := fetch(f, f.Context(), g, "k", never(f)).got() // its age is by the last reply, and the time since
			redistest.Check(f, r.Source == singleflight.Cached && r.Age == 4*time.Second, "%+v", r)
			time.Sleep(7 * time.Second)
			redistest.Expect(f, fetch(f, f.Context(), g, "k", gives("new")).got().Source, singleflight.Stale, "it came from %v")
		})
	}
}
