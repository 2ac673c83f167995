package singleflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
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

// A codec that decodes nothing gives no caller an error: each has its own loader's value
// in the end, of loads that MaxLoads bounds.
func TestCodecThatDecodesNothing(t *testing.T) {
	const callers, most = 20, 3
	for what, away := range map[string]bool{"with Redis": false, "without Redis": true} {
		subBubble(t, what, func(f *fixture) {
			g, wire := f.open(maxLoads(most), locally, blind)
			if away {
				wire.Cut()
			}
			var run, loads atomic.Int32
			var all []*pending[string]
			for i := range callers {
				all = append(all, fetch(f, f.Context(), g, "k", func(context.Context) (string, error) {
					loads.Add(1)
					n := run.Add(1)
					defer run.Add(-1)
					redistest.Check(f, away || n <= most, "%d loads at once", n)
					time.Sleep(10 * time.Millisecond)
					return fmt.Sprint("of caller ", i), nil
				}))
			}
			time.Sleep(time.Minute)
			for i, p := range all {
				p.wantValue(fmt.Sprint("of caller ", i))
			}
			redistest.AtMost(f, loads.Load(), callers, "%d loads")
			redistest.Expect(f, g.Stats().Errors, 0, "Errors is %v")
		})
	}
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

// Two schemas of a key have a value each: neither reads, overwrites or waits for the other's. Invalidate reaches both.
func TestSchemasSideBySide(t *testing.T) {
	each(t, func(f *fixture) {
		g, _ := f.open(func(c *singleflight.Config[string]) { c.Schema = 1 })
		next, _ := f.open(func(c *singleflight.Config[string]) { c.Schema = math.MaxUint32 })
		fetch(f, f.Context(), g, "k", gives("1")).Got()
		wantNothing(f, next, "k")
		redistest.Check(f, !inspect(f, next, "k").Cached, "Cached is true")
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
	})
}
