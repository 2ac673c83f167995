package singleflight

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// hostileError is an error whose methods do as they are told.
type hostileError struct{ text, is, unwrap func() }

func (e *hostileError) Error() string {
	if e.text != nil {
		e.text()
	}
	return "hostile"
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

// together makes a first caller, one that joins it and one in another process ask for key. The
// load ends as end says.
func together[T any](f *fixture, g, other *singleflight.Group[T], key string, end func() (T, error)) (first, joins, waits *pending[T]) {
	f.Helper()
	gate := make(chan struct{})
	load := func(context.Context) (T, error) { <-gate; return end() }
	first = fetch(f, f.Context(), g, key, load)
	synctest.Wait()
	joins, waits = fetch(f, f.Context(), g, key, load), fetch(f, f.Context(), other, key, load)
	synctest.Wait()
	close(gate)
	return first, joins, waits
}

// Whatever the methods of a loader's error do, each caller gets an error, which names the
// method that did not return.
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
		subBubble(t, name, func(f *fixture, _ *miniredis.Miniredis) {
			g, _ := f.open(staleFor)
			other, _ := f.open(staleFor)
			first, joins, waits := together(f, g, other, "k", func() (string, error) { return "", c.err })
			for _, p := range []*pending[string]{first, joins, waits} {
				err := p.failed()
				redistest.WantText(f, err, append(c.want, f.Family+"/k")...)
				redistest.WantNot(f, err, singleflight.ErrNotFound, singleflight.ErrLoadTimeout)
			}
			// A refresh in the background and a DoMany meet it, too.
			fetch(f, f.Context(), g, "k", gives("old")).got()
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

// noCtx is an Observer that takes the ctx of each load away.
type noCtx struct{}

func (noCtx) Observe(e leasehold.Event) {
	if e.Kind == leasehold.EventLoadStarted {
		e.Load.Context = nil
	}
}

// A loader gets a ctx, whatever the Observer does with it.
func TestObserverThatLeavesNoCtx(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, _ := f.open(func(c *singleflight.Config[string]) { c.Observer, c.LoadTimeout = noCtx{}, time.Second })
		oops := errors.New("oops")
		fetch(f, f.Context(), g, "k", func(ctx context.Context) (string, error) { return "v", ctx.Err() }).want("v", singleflight.Loaded)
		redistest.WantErr(f, fetch(f, f.Context(), g, "l", fails(oops)).failed(), oops)
	})
}

// watchedCtx tells whether a load has asked it for a value.
type watchedCtx struct {
	context.Context
	asked atomic.Bool
}

func (c *watchedCtx) Value(key any) any {
	var calls [64]uintptr
	frames := runtime.CallersFrames(calls[:runtime.Callers(1, calls[:])])
	for more := true; more; {
		var frame runtime.Frame
		if frame, more = frames.Next(); strings.Contains(frame.Function, "singleflight.(*load[") {
			c.asked.Store(true)
		}
	}
	return c.Context.Value(key)
}

// A load starts under the lock of its group, so it calls no method of its caller's ctx: one that
// blocks would hold up all callers.
func TestLoadAsksTheCtxOfItsCallerNothing(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, _ := f.open(staleFor)
		ctx := &watchedCtx{Context: f.Context()}
		fetch(f, ctx, g, "k", gives("v")).want("v", singleflight.Loaded)
		f.stalled(g, "k")
		fetch(f, ctx, g, "k", gives("w")).want("v", singleflight.Stale)
		synctest.Wait()
		if ctx.asked.Load() {
			f.Error("the load has asked the ctx for a value")
		}
	})
}

// The text of a loader's error is that of its first use, and is cut for other processes.
func TestErrorWhoseTextChanges(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, _ := f.open()
		other, _ := f.open()
		changing := &changingError{text: "first" + strings.Repeat("x", 1<<20)}
		first, joins, waits := together(f, g, other, "k", func() (string, error) { return "", changing })
		for _, p := range []*pending[string]{first, joins, waits} {
			err := p.failed()
			if text, again := err.Error(), err.Error(); !strings.Contains(text, ": firstx") || text != again {
				f.Errorf("%.200s, then %.200s", text, again)
			}
		}
		redistest.WantErr(f, first.err, changing)
		if n := len(waits.err.Error()); n > 5000 {
			f.Errorf("%d bytes reached another process", n)
		}
	})
}

type changingError struct{ text string }

func (e *changingError) Error() string {
	text := e.text
	e.text = "later"
	return text
}

// An Error that never returns is a load that takes too long.
func TestErrorWhoseTextNeverComes(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		mod := func(c *singleflight.Config[string]) { c.LoadTimeout = time.Second }
		g, _ := f.open(mod)
		other, _ := f.open(mod)
		over := make(chan struct{})
		defer close(over)
		first, joins, waits := together(f, g, other, "k", func() (string, error) { return "", &hostileError{text: func() { <-over }} })
		for _, p := range []*pending[string]{first, joins, waits} {
			redistest.WantErr(f, p.failed(), singleflight.ErrLoadTimeout)
		}
	})
}

// A codec that ends its goroutine has failed: the first caller gets what its loader returned,
// all others an error that says so, and Put as well.
func TestCodecThatExits(t *testing.T) {
	for name, c := range map[string]struct {
		marshal func() error
		want    []string
	}{
		"exits":                       {func() error { runtime.Goexit(); return nil }, []string{"the codec", "runtime.Goexit"}},
		"panics with what never ends": {func() error { panic(selfContained()) }, []string{"the codec panicked", "a []interface"}},
		"fails with a hostile error":  {func() error { return &hostileError{text: panics} }, []string{"method Error of the codec's error", "oh no"}},
		"fails with an exit":          {func() error { return &hostileError{text: runtime.Goexit} }, []string{"method Error of the codec's error", "Goexit"}},
	} {
		subBubble(t, name, func(f *fixture, _ *miniredis.Miniredis) {
			mod := func(cfg *singleflight.Config[string]) { cfg.Codec = &jsonCodec{marshal: c.marshal} }
			g, _ := f.open(mod)
			other, _ := f.open(mod)
			first, joins, waits := together(f, g, other, "k", func() (string, error) { return "v", nil })
			if r := first.got(); r.Value != "v" || r.Source != singleflight.Loaded {
				f.Errorf("%+v", r)
			}
			redistest.WantText(f, joins.failed(), c.want...)
			redistest.WantText(f, waits.failed(), c.want...)
			err := g.Put(f.Context(), "k", "v")
			redistest.WantErr(f, err, leasehold.ErrInvalid)
			redistest.WantText(f, err, c.want...)
			harness.Close(f, g)
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
				mod := func(c *singleflight.Config[string]) { c.Codec = codec }
				good, _ := f.open(func(c *singleflight.Config[string]) { c.Codec = &jsonCodec{} })
				for _, key := range []string{"a", "b", "c"} {
					fetch(f, f.Context(), good, key, gives("old")).got()
				}
				codec.unmarshal = func() error { way(); return nil }
				g, _ := f.open(mod)
				ctx, cancel := context.WithTimeout(f.Context(), time.Second)
				defer cancel()
				if name == "hangs" {
					redistest.WantErr(f, fetch(f, ctx, g, "a", gives("new")).failed(), context.DeadlineExceeded)
					_, _, err := g.Peek(ctx, "a")
					redistest.WantErr(f, err, context.DeadlineExceeded)
					return
				}
				if r := fetch(f, f.Context(), g, "a", gives("new")).got(); r.Value != "new" || r.Source != singleflight.Loaded {
					f.Errorf("%+v", r)
				}
				redistest.NoError(f, doMany(f, f.Context(), g, []string{"b", "c"}, newBatches()).got("b", "B", "c", "C"))
				if _, there, err := g.Peek(f.Context(), "a"); there || err != nil {
					f.Errorf("peek: %v, %v", there, err)
				}
				harness.Close(f, g)
			})
		})
	}
}

// methods is a value with methods for msgpack, which do as they are told.
type methods struct{ S string }

var marshalMethods, unmarshalMethods func()

func (m *methods) MarshalMsgpack() ([]byte, error) {
	if marshalMethods != nil {
		marshalMethods()
	}
	return append([]byte{0xa0 | byte(len(m.S))}, m.S...), nil
}

func (m *methods) UnmarshalMsgpack(b []byte) error {
	if unmarshalMethods != nil {
		unmarshalMethods()
	}
	m.S = string(b[1:])
	return nil
}

// So it is with the methods of a value.
func TestMethodsOfAValueThatExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer func() { marshalMethods, unmarshalMethods = nil, nil }()
		_, client := redistest.Bubble(t)
		f := &fixture{harness.NewOn(t, harness.Loads, client())}
		g, other := openOn[methods](f, client()), openOn[methods](f, client())
		marshalMethods = runtime.Goexit
		first, joins, waits := together(f, g, other, "k", func() (methods, error) { return methods{"v"}, nil })
		if r := first.got(); r.Value.S != "v" {
			f.Errorf("%+v", r)
		}
		redistest.WantText(f, joins.failed(), "the codec called runtime.Goexit")
		redistest.WantText(f, waits.failed(), "the codec called runtime.Goexit")
		marshalMethods = nil
		fetch(f, f.Context(), g, "k", func(context.Context) (methods, error) { return methods{"v"}, nil }).got()
		unmarshalMethods = runtime.Goexit
		r := fetch(f, f.Context(), other, "k", func(context.Context) (methods, error) { return methods{"w"}, nil }).got()
		redistest.Check(f, r.Value.S == "w" && r.Source == singleflight.Loaded, "%+v", r)
		harness.Close(f, g)
		harness.Close(f, other)
	})
}

// TTLFor that ends its goroutine is as a loader that does, and is named.
func TestTTLForThatExits(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		mod := func(c *singleflight.Config[string]) {
			c.TTLFor = func(string, string) time.Duration { runtime.Goexit(); return 0 }
		}
		g, _ := f.open(mod)
		other, _ := f.open(mod)
		first, joins, waits := together(f, g, other, "k", func() (string, error) { return "v", nil })
		redistest.Get(f, "the first caller's end", first.done)
		redistest.Check(f, first.exited, "%+v", first)
		for _, err := range []error{joins.failed(), waits.failed()} {
			redistest.WantErr(f, err, singleflight.ErrLoaderPanicked)
			redistest.WantText(f, err, "TTLFor called runtime.Goexit")
		}
		redistest.WantText(f, g.Put(f.Context(), "k", "v"), "TTLFor called runtime.Goexit")
		harness.Close(f, g)
	})
}

// ring is a value that contains itself.
type ring struct {
	Name string
	Next *ring
}

// A value that contains itself is one that cannot be encoded.
func TestValueThatContainsItself(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		g, _ := openOf[*ring](f)
		other, _ := openOf[*ring](f)
		self := &ring{Name: "self"}
		self.Next = self
		first, joins, waits := together(f, g, other, "k", func() (*ring, error) { return self, nil })
		if r := first.got(); r.Value != self {
			f.Errorf("%+v", r)
		}
		redistest.WantText(f, joins.failed(), "contains itself")
		redistest.WantText(f, waits.failed(), "contains itself")
		redistest.WantErr(f, g.Put(f.Context(), "k", self), leasehold.ErrInvalid)
		if s := inspect(f, g, "k"); s.Cached {
			f.Errorf("%+v", s)
		}
		long := &ring{Name: "end"}
		for range 500 {
			long = &ring{Next: long}
		}
		redistest.NoError(f, g.Put(f.Context(), "k", long))
	})
}

// observerFunc is an Observer.
type observerFunc func(leasehold.Event)

func (fn observerFunc) Observe(e leasehold.Event) { fn(e) }

// An Observer that panics changes nothing. One that ends its goroutine may end a call with an
// error, but nobody waits for ever.
func TestHostileObserver(t *testing.T) {
	for name, way := range map[string]func(){"panics": panics, "exits": runtime.Goexit} {
		for _, kind := range []leasehold.EventKind{leasehold.EventLoadStarted, leasehold.EventLoadEnded, leasehold.EventPublished, leasehold.EventLookup} {
			subBubble(t, name, func(f *fixture, _ *miniredis.Miniredis) {
				g, _ := f.open(func(c *singleflight.Config[string]) {
					c.Observer = observerFunc(func(e leasehold.Event) {
						if e.Kind == kind {
							way()
						}
					})
				})
				other, _ := f.open()
				first, joins, waits := together(f, g, other, "k", func() (string, error) { return "v", nil })
				for _, p := range []*pending[string]{first, joins, waits} {
					redistest.Get(f, "the end of a call", p.done)
					if name == "panics" && (p.err != nil || p.result.Value != "v") {
						f.Errorf("event %d: %+v, %v", kind, p.result, p.err)
					}
				}
				harness.Close(f, g)
			})
		}
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
		subBubble(t, name, func(f *fixture, _ *miniredis.Miniredis) {
			over := make(chan struct{})
			lines := make(chan struct{}, 1000)
			g, _ := f.open(func(c *singleflight.Config[string]) {
				c.MaxValueBytes = 1
				c.Logger = slog.New(hostileHandler{handle: func() { lines <- struct{}{}; way(over) }})
			})
			began := time.Now()
			for range 200 {
				if r := fetch(f, f.Context(), g, "k", gives("large")).got(); r.Value != "large" {
					f.Errorf("%+v", r)
				}
			}
			if d := time.Since(began); d > 200*time.Millisecond {
				f.Errorf("200 lines took %v", d)
			}
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
