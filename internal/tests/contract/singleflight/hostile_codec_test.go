package singleflight

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A value that its codec does not encode, in whichever way the codec ends, is its first caller's
// all the same. All others and Put get an error that says so. Nothing is stored or remembered.
func TestValueThatCannotBeEncodedGoesToItsFirstCaller(t *testing.T) {
	for name, c := range map[string]struct {
		marshal func() error
		want    []string
	}{
		"fails":                       {func() error { return errors.New("won't encode") }, []string{"won't encode"}},
		"panics":                      {func() error { panic("won't encode") }, []string{"won't encode"}},
		"exits":                       {func() error { runtime.Goexit(); return nil }, []string{"the codec", "runtime.Goexit"}},
		"panics with what never ends": {func() error { panic(selfContained()) }, []string{"the codec panicked", "a []interface"}},
		"fails with a hostile error":  {func() error { return &hostileError{text: panics} }, []string{"method Error of the codec's error", "oh no"}},
		"fails with an exit":          {func() error { return &hostileError{text: runtime.Goexit} }, []string{"method Error of the codec's error", "Goexit"}},
	} {
		subBubble(t, name, func(f *fixture) {
			mod := func(cfg *singleflight.Config[string]) {
				cfg.Codec, cfg.ErrorTTL, cfg.StaleFor = &jsonCodec{marshal: c.marshal}, time.Minute, time.Minute
			}
			g, other := f.two(mod)
			first, joins, waits := together(f, g, other, "k", func() (string, error) { return "v", nil })
			first.want("v", singleflight.Loaded)
			redistest.WantText(f, joins.failed(), c.want...)
			redistest.WantText(f, waits.failed(), c.want...)
			redistest.Check(f, errors.As(waits.err, new(*singleflight.RemoteError)), "%v", waits.err)
			s := inspect(f, g, "k")
			redistest.Check(f, !s.Cached && s.Failure == "" && !s.Loading, "%+v", s)
			fetch(f, f.Context(), other, "k", gives("w")).want("w", singleflight.Loaded)
			err := g.Put(f.Context(), "k", "v")
			redistest.WantErr(f, err, leasehold.ErrInvalid)
			redistest.WantText(f, err, c.want...)
			harness.Close(f, g)
		})
	}
}

// A codec or a TTLFor that hangs does not hold up a Put whose ctx ends, or whose handle is closed. If that was so
// before, neither is called: it could still read the value after Put has returned.
func TestPutWhoseCodecHangs(t *testing.T) {
	for name, mod := range map[string]func(c *singleflight.Config[string], hangs func() error){
		"codec": func(c *singleflight.Config[string], hangs func() error) { c.Codec = &jsonCodec{marshal: hangs} },
		"TTLFor": func(c *singleflight.Config[string], hangs func() error) {
			c.TTLFor = func(string, string) time.Duration { _ = hangs(); return 0 }
		},
	} {
		subBubble(t, name, func(f *fixture) {
			over := make(chan struct{})
			defer close(over)
			var calls atomic.Int64
			g, _ := f.open(func(c *singleflight.Config[string]) {
				mod(c, func() error { calls.Add(1); <-over; return nil })
			})
			ctx := f.within(time.Second)
			for range 2 {
				redistest.WantErr(f, g.Put(ctx, "k", "v"), context.DeadlineExceeded)
			}
			puts := harness.Start(f.T, func() (struct{}, error) { return struct{}{}, g.Put(f.Context(), "k", "v") })
			synctest.Wait()
			harness.Close(f, g)
			redistest.WantErr(f, puts.Failed(), leasehold.ErrClosed)
			redistest.WantErr(f, g.Put(f.Context(), "k", "v"), leasehold.ErrClosed)
			synctest.Wait()
			redistest.Expect(f, calls.Load(), 2, "it was called %d times")
		})
	}
}

func selfContained() any {
	all := []any{nil}
	all[0] = all
	return all
}

// An entry that its codec does not decode is a miss, in whichever way the codec ends. If the
// codec does not end at all, the caller's ctx ends the call.
func TestDecodingThatExits(t *testing.T) {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	for name, way := range map[string]func(){"panics": panics, "exits": runtime.Goexit, "hangs": func() { <-over }} {
		t.Run(name, func(t *testing.T) {
			some(t, func(f *fixture) {
				codec := &jsonCodec{}
				good, _ := f.open(func(c *singleflight.Config[string]) { c.Codec = &jsonCodec{} })
				for _, key := range []string{"a", "b", "c"} {
					fetch(f, f.Context(), good, key, gives("old")).got()
				}
				codec.unmarshal = func() error { way(); return nil }
				g, _ := f.open(func(c *singleflight.Config[string]) { c.Codec = codec })
				ctx := f.within(time.Second)
				if name == "hangs" {
					redistest.WantErr(f, fetch(f, ctx, g, "a", gives("new")).failed(), context.DeadlineExceeded)
					redistest.WantErr(f, peekErr(ctx, g, "a"), context.DeadlineExceeded)
					return
				}
				fetch(f, f.Context(), g, "a", gives("new")).want("new", singleflight.Loaded)
				redistest.NoError(f, doMany(f, f.Context(), g, []string{"b", "c"}, newBatches()).got("b", "B", "c", "C"))
				wantNothing(f, g, "a")
				harness.Close(f, g)
			})
		})
	}
}
