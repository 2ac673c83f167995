package singleflight

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
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
	text, is, unwrap hook
	long             int // its text has so many bytes more
}

func (e *hostileError) Error() string { e.text.run(); return "hostile" + strings.Repeat("x", e.long) }
func (e *hostileError) Is(error) bool { e.is.run(); return false }
func (e *hostileError) Unwrap() error { e.unwrap.run(); return nil }

// hook is what a method does first; nil: nothing.
type hook func()

func (h hook) run() {
	if h != nil {
		h()
	}
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
			g, other, _ := f.two(staleFor)
			first, joins, waits := together(f, g, other, "k", func() (string, error) { return "", c.err })
			for _, p := range []*pending[string]{first, joins, waits} {
				no := redistest.Not(singleflight.ErrNotFound, singleflight.ErrLoadTimeout)
				redistest.WantErr(f, p.Failed(), no, redistest.Says(append(c.want, f.Family+"/k")...))
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

type hostileWriter func()

func (w hostileWriter) Write(line []byte) (int, error) { w(); return len(line), nil }

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
				c.Logger = slog.New(slog.NewTextHandler(hostileWriter(func() { lines <- struct{}{}; way(over) }), nil))
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

// ways are how a loader can end without returning.
var ways = map[string]struct {
	end  func()
	text string
	left func(p *pending[string]) bool // its own caller was left so, too
}{
	"panic":  {func() { panic(errors.New("oh no")) }, "panicked: oh no", func(p *pending[string]) bool { return p.raised != nil && p.raised.(error).Error() == "oh no" }},
	"goexit": {runtime.Goexit, "runtime.Goexit", func(p *pending[string]) bool { return p.Err == harness.ErrExited }},
}

// A panic and a Goexit, of the loader or of TTLFor, are raised again in the first caller, and are an error that says so
// for all others, everywhere; never remembered, and the lease is free at once.
func TestPanicAndGoexitReachAllCallers(t *testing.T) {
	some(t, func(f *fixture) {
		for what, way := range ways {
			for _, code := range []string{"the loader", "TTLFor"} {
				key, end := what+" of "+code, func() (string, error) { return "ends TTLFor", nil }
				if code == "the loader" {
					end = func() (string, error) { way.end(); return "", nil }
				}
				g, other, _ := f.two(func(c *singleflight.Config[string]) {
					c.ErrorTTL, c.StaleFor = time.Minute, time.Minute
					c.TTLFor = func(_, v string) time.Duration {
						if v == "ends TTLFor" {
							way.end()
						}
						return 0
					}
				})
				first, l, _ := f.loading(g, key)
				joins := fetch(f, f.Context(), g, key, func(context.Context) (string, error) { return end() })
				waits := fetch(f, f.Context(), other, key, never(f))
				redistest.Eventually(f, "the other", func() bool { return f.Queued(key) == 1 })
				began := time.Now()
				l.end(end)
				redistest.Get(f, "the first caller's end", first.Done)
				redistest.Check(f, way.left(first), "%s: the first caller has %+v, %v, panic %v", key, first.Value, first.Err, first.raised)
				err := waits.Failed()
				redistest.WantErr(f, err, singleflight.ErrLoaderPanicked, redistest.Says(code, way.text))
				redistest.Check(f, !strings.Contains(err.Error(), "goroutine ") && !strings.Contains(err.Error(), ".go:"),
					"a stack left its process: %v", err)
				redistest.WantNot(f, err, singleflight.ErrNotFound, singleflight.ErrLoadTimeout)
				redistest.Get(f, "the caller that joined", joins.Done) // or came too late, and looked for itself
				if !way.left(joins) {
					redistest.WantErr(f, joins.Err, singleflight.ErrLoaderPanicked)
				}
				redistest.AtMost(f, time.Since(began), 5*time.Second, key+": after %v")
				wantIdle(f, g, key)
				fetch(f, f.Context(), other, key, gives("v")).want("v", singleflight.Loaded)
				if code == "TTLFor" {
					redistest.WantText(f, g.Put(f.Context(), key, "ends TTLFor"), code, way.text)
				}
			}
		}
	})
}

// Where the first caller has left, nobody else is thrown out; a refresh that
// panics ends nothing, and is logged, with its stack.
func TestPanicAfterItsCallerLeft(t *testing.T) {
	for what, way := range ways {
		subBubble(t, what, func(f *fixture) {
			var log bytes.Buffer
			g, _ := f.open(staleFor, func(c *singleflight.Config[string]) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			o := newOrigin(f)
			ctx, cancel := context.WithCancel(f.Context())
			first, l := begin(f, ctx, g, "k", o, o.load)
			joins := fetch(f, f.Context(), g, "k", never(f))
			cancel()
			first.Failed()
			l.does(way.end)
			redistest.WantErr(f, joins.Failed(), singleflight.ErrLoaderPanicked)

			f.stalled(g, "k")
			synctest.Wait()
			log.Reset()
			fetch(f, f.Context(), g, "k", func(context.Context) (string, error) { way.end(); return "", nil }).want("old", singleflight.Stale)
			synctest.Wait()
			text := log.String()
			redistest.Check(f, strings.Contains(text, way.text) && strings.Contains(text, f.Family+"/k"), "%s", text)
			redistest.Check(f, what != "panic" || strings.Contains(text, "hostile_test.go"), "there is no stack: %s", text)
			redistest.Check(f, f.freed("k"), "the lease is held yet")
			s := g.Stats()
			redistest.Check(f, s.FailedLoads == 2 && s.Loads == 3, "%+v", s)
		})
	}
}

// Of a DoMany each process's callers get it, and the keys of others as well.
func TestPanicInDoMany(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other, _ := f.two()
		gate := make(chan struct{})
		var raised any
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { raised = recover() }()
			_, _ = g.DoMany(f.Context(), []string{"a", "b"}, func(context.Context, []string) (map[string]string, error) {
				<-gate
				panic("oh no")
			})
		}()
		synctest.Wait()
		b := newBatches()
		waits := doMany(f, f.Context(), other, []string{"b", "a", "c"}, b)
		joins := fetch(f, f.Context(), g, "b", never(f))
		close(gate)
		redistest.Get(f, "the panic", done)
		redistest.Expect(f, raised, "oh no", "%v")
		redistest.WantErr(f, joins.Failed(), singleflight.ErrLoaderPanicked)
		redistest.WantErr(f, waits.got("c", "C"), singleflight.ErrLoaderPanicked, redistest.Says(f.Family+"/a", f.Family+"/b", "oh no"))
		for _, key := range []string{"a", "b"} {
			redistest.Check(f, f.freed(key), "the lease of %s is held yet", key)
		}
	})
}

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
		"panics with a maze":          {func() error { panic(newMaze()) }, []string{"the codec panicked", "a *singleflight.maze"}},
		"fails with a hostile error":  {func() error { return &hostileError{text: panics} }, []string{"method Error of the codec's error", "oh no"}},
		"fails with an exit":          {func() error { return &hostileError{text: runtime.Goexit} }, []string{"method Error of the codec's error", "Goexit"}},
	} {
		subBubble(t, name, func(f *fixture) {
			mod := func(cfg *singleflight.Config[string]) {
				cfg.Codec, cfg.ErrorTTL, cfg.StaleFor = &jsonCodec{marshal: c.marshal}, time.Minute, time.Minute
			}
			g, other, _ := f.two(mod)
			first, joins, waits := together(f, g, other, "k", func() (string, error) { return "v", nil })
			first.want("v", singleflight.Loaded)
			redistest.WantText(f, joins.Failed(), c.want...)
			redistest.WantText(f, waits.Failed(), c.want...)
			redistest.Check(f, errors.As(waits.Err, new(*singleflight.RemoteError)), "%v", waits.Err)
			wantIdle(f, g, "k")
			fetch(f, f.Context(), other, "k", gives("w")).want("w", singleflight.Loaded)
			redistest.WantErr(f, g.Put(f.Context(), "k", "v"), leasehold.ErrInvalid, redistest.Says(c.want...))
			harness.Close(f, g)
		})
	}
}

// A codec or a TTLFor hangs. Put returns all the same if its ctx ends or its handle is closed. If that was so
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
			ctx := f.Within(time.Second)
			for range 2 {
				redistest.WantErr(f, g.Put(ctx, "k", "v"), context.DeadlineExceeded)
			}
			puts := harness.Begin(f, func() error { return g.Put(f.Context(), "k", "v") })
			synctest.Wait()
			harness.Close(f, g)
			redistest.WantErr(f, puts.Failed(), leasehold.ErrClosed)
			redistest.WantErr(f, g.Put(f.Context(), "k", "v"), leasehold.ErrClosed)
			synctest.Wait()
			redistest.Expect(f, calls.Load(), 2, "it was called %d times")
		})
	}
}

// maze is a value with more ways through it than could be walked.
type maze struct{ Left, Right *maze }

func newMaze() (m *maze) {
	for range 100 {
		m = &maze{m, m}
	}
	return m
}

func selfContained() any {
	all := []any{nil}
	all[0] = all
	return all
}

// An entry that its codec does not decode is a miss, in whichever way the codec ends.
func TestDecodingThatExits(t *testing.T) {
	some(t, func(f *fixture) {
		for name, way := range map[string]func(){"panics": panics, "exits": runtime.Goexit} {
			codec := &jsonCodec{}
			good, _ := f.open(func(c *singleflight.Config[string]) { c.Codec = &jsonCodec{} })
			g, _ := f.open(func(c *singleflight.Config[string]) { c.Codec = codec })
			a, b, c := name+" a", name+" b", name+" c"
			for _, key := range []string{a, b, c} {
				fetch(f, f.Context(), good, key, gives("old")).Got()
			}
			codec.unmarshal = func() error { way(); return nil }
			fetch(f, f.Context(), g, a, gives("new")).want("new", singleflight.Loaded)
			m, err := g.DoMany(f.Context(), []string{b, c}, newBatches().load)
			redistest.Check(f, len(m) == 2 && m[b] == strings.ToUpper(b) && m[c] == strings.ToUpper(c) && err == nil, "%v, %v", m, err)
			wantNothing(f, g, a)
			harness.Close(f, g)
		}
	})
}
