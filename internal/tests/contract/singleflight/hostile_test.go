package singleflight

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// hostileError is an error whose methods do as they are told.
type hostileError struct {
	text, is, unwrap func()
	long             int // its text has so many bytes more
}

func (e *hostileError) Error() string {
	if e.text != nil {
		e.text()
	}
	return "hostile" + strings.Repeat("x", e.long)
}

func (e *hostileError) Is(error) bool {
	if e.is != nil {
		e.is()
	}
	return false
}

func (e *hostileError) Unwrap() error {
	if e.unwrap != nil {
		e.unwrap()
	}
	return nil
}

func panics() { panic("oh no") }

// together makes a first caller, one that joins it and one in another process ask for key. The load ends as end says.
func together[T any](f *fixture, g, other *singleflight.Group[T], key string, end func() (T, error)) (first, joins, waits *pending[T]) {
	f.Helper()
	gate := make(chan struct{})
	load := func(context.Context) (T, error) { <-gate; return end() }
	first = fetch(f, f.Context(), g, key, load)
	joins, waits = fetch(f, f.Context(), g, key, load), fetch(f, f.Context(), other, key, load)
	close(gate)
	return first, joins, waits
}

// Whatever the methods of a loader's error do, each caller gets an error, which names the method that did not return.
func TestHostileErrorsOfALoader(t *testing.T) {
	var none *hostileError
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"typed nil":      {none, []string{"method Error", "*singleflight.hostileError", "nil pointer"}},
		"Error panics":   {&hostileError{text: panics}, []string{"method Error", "panicked: oh no"}},
		"Error exits":    {&hostileError{text: runtime.Goexit}, []string{"method Error", "runtime.Goexit"}},
		"Error re-exits": {&hostileError{text: func() { panic(&hostileError{text: runtime.Goexit}) }}, []string{"method Error", "panicked"}},
		"Is panics":      {&hostileError{is: panics}, []string{"method Is", "panicked: oh no"}},
		"Is exits":       {&hostileError{is: runtime.Goexit}, []string{"method Is", "runtime.Goexit"}},
		"Unwrap panics":  {&hostileError{unwrap: panics}, []string{"Unwrap", "panicked: oh no"}},
		"Unwrap exits":   {&hostileError{unwrap: runtime.Goexit}, []string{"Unwrap", "runtime.Goexit"}},
	} {
		subBubble(t, name, func(f *fixture) {
			g, other := f.two(staleFor)
			first, joins, waits := together(f, g, other, "k", func() (string, error) { return "", c.err })
			for _, p := range []*pending[string]{first, joins, waits} {
				err := p.Failed()
				redistest.WantText(f, err, append(c.want, f.Family+"/k")...)
				redistest.WantNot(f, err, singleflight.ErrNotFound, singleflight.ErrLoadTimeout)
			}
			// A refresh in the background and a DoMany meet it, too.
			fetch(f, f.Context(), g, "k", gives("old")).Got()
			f.stalled(g, "k")
			fetch(f, f.Context(), g, "k", fails(c.err)).want("old", singleflight.Stale)
			_, err := g.DoMany(f.Context(), []string{"a", "b"}, func(context.Context, []string) (map[string]string, error) {
				return map[string]string{"a": "A"}, c.err
			})
			redistest.WantText(f, keysError(f, err, "b")["b"], c.want...)
			synctest.Wait()
			harness.Close(f, g)
		})
	}
}

// A loader gets a ctx, whatever the Observer does with it, and no method of that ctx ends the process. A method that
// ends its goroutine, or does not return, costs that load: its callers are told.
func TestObserverThatLeavesABrokenCtx(t *testing.T) {
	does := func(what func()) context.Context {
		return harness.BrokenCtx{Context: context.Background(), Before: func(string) { what() }}
	}
	for what, c := range map[string]struct {
		left context.Context
		want error
	}{
		"none":            {nil, nil},
		"one that panics": {struct{ context.Context }{}, nil},
		"one that exits":  {does(runtime.Goexit), harness.ErrExited},
		"one that hangs":  {does(func() { time.Sleep(1500 * time.Millisecond) }), singleflight.ErrLoadTimeout},
	} {
		subBubble(t, what, func(f *fixture) {
			g, _ := f.open(func(cfg *singleflight.Config[string]) {
				cfg.LoadTimeout = time.Second
				cfg.Observer = harness.ObserverFunc(func(e leasehold.Event) {
					if e.Kind == leasehold.EventLoadStarted {
						e.Load.Context = c.left
					}
				})
			})
			if c.want != nil {
				redistest.WantErr(f, fetch(f, f.Context(), g, "k", gives("v")).Failed(), c.want)
				f.WantHeld("k", 0)
				return
			}
			fetch(f, f.Context(), g, "k", func(ctx context.Context) (string, error) { return "v", ctx.Err() }).want("v", singleflight.Loaded)
			redistest.WantErr(f, fetch(f, f.Context(), g, "l", fails(errBoom)).Failed(), errBoom)
		})
	}
}

// The text of a loader's error is that of its first use, and is cut for other processes. A text that never comes makes
// a load that takes too long.
func TestErrorWhoseTextChanges(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other := f.two(func(c *singleflight.Config[string]) { c.LoadTimeout = time.Second })
		uses := 0
		changing := &hostileError{text: func() { uses++ }, long: 1 << 20}
		first, joins, waits := together(f, g, other, "k", func() (string, error) { return "", changing })
		for _, p := range []*pending[string]{first, joins, waits} {
			redistest.WantText(f, p.Failed(), ": hostilex")
			redistest.Require(f, p.Err.Error(), p.Err.Error(), "the text changes: %.200s")
		}
		redistest.Expect(f, uses, 1, "its text was asked for %d times")
		redistest.WantErr(f, first.Err, changing)
		redistest.AtMost(f, len(waits.Err.Error()), 5000, "%d bytes reached another process")
		over := make(chan struct{})
		defer close(over)
		first, joins, waits = together(f, g, other, "k", func() (string, error) { return "", &hostileError{text: func() { <-over }} })
		for _, p := range []*pending[string]{first, joins, waits} {
			redistest.WantErr(f, p.Failed(), singleflight.ErrLoadTimeout)
		}
	})
}

// A TTLFor that panics or ends its goroutine is as a loader that does, and is named: it ends no process.
func TestTTLForThatPanicsOrExits(t *testing.T) {
	for text, end := range map[string]func(){"TTLFor panicked: oh no": panics, "TTLFor called runtime.Goexit": runtime.Goexit} {
		subBubble(t, text, func(f *fixture) {
			mod := func(c *singleflight.Config[string]) {
				c.TTLFor = func(string, string) time.Duration { end(); return 0 }
			}
			g, other := f.two(mod)
			first, joins, waits := together(f, g, other, "k", func() (string, error) { return "v", nil })
			redistest.Get(f, "the first caller's end", first.Done)
			redistest.Check(f, first.Err == harness.ErrExited || first.raised == "oh no", "%+v", first)
			for _, err := range []error{joins.Failed(), waits.Failed()} {
				redistest.WantErr(f, err, singleflight.ErrLoaderPanicked, redistest.Says(text))
			}
			redistest.Check(f, f.freed("k"), "the lease is held yet")
			redistest.WantText(f, g.Put(f.Context(), "k", "v"), text)
			harness.Close(f, g)
		})
	}
}

// hostileHandler is a handler of slog.
type hostileHandler struct {
	slog.Handler
	handle func()
}

func (h hostileHandler) Handle(context.Context, slog.Record) error { h.handle(); return nil }
func (h hostileHandler) Enabled(context.Context, slog.Level) bool  { return true }

// A handler of the log holds up nothing for long, and ends nothing, whatever it does.
func TestHostileLogger(t *testing.T) {
	for name, way := range map[string]func(over chan struct{}){
		"panics": func(chan struct{}) { panics() },
		"exits":  func(chan struct{}) { runtime.Goexit() },
		"hangs":  func(over chan struct{}) { <-over },
	} {
		subBubble(t, name, func(f *fixture) {
			over := make(chan struct{})
			lines := make(chan struct{}, 1000)
			g, _ := f.open(func(c *singleflight.Config[string]) {
				c.MaxValueBytes = 1
				c.Logger = slog.New(hostileHandler{handle: func() { lines <- struct{}{}; way(over) }})
			})
			began := time.Now()
			for range 200 {
				fetch(f, f.Context(), g, "k", gives("large")).wantValue("large")
			}
			redistest.AtMost(f, time.Since(began), 200*time.Millisecond, "200 lines took %v")
			synctest.Wait()
			redistest.Check(f, len(lines) != 0, "nothing was logged")
			harness.Close(f, g)
			close(over)
		})
	}
}

// A sentinel that has no text is refused.
func TestHostileSentinels(t *testing.T) {
	for name, err := range map[string]error{
		"panics": &hostileError{text: panics}, "exits": &hostileError{text: runtime.Goexit}, "is not comparable": uncomparable{},
	} {
		_, got := singleflight.New(nowhere(t), singleflight.Config[int]{Name: "n", TTL: time.Minute, Errors: []error{err}})
		redistest.Check(t, got != nil, "%s: it is accepted", name)
		redistest.WantErr(t, got, leasehold.ErrInvalid)
		redistest.WantText(t, got, "Errors [0]")
	}
}

type uncomparable []string

func (uncomparable) Error() string { return "uncomparable" }
