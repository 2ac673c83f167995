package singleflight

import (
	"context"
	"errors"
	"fmt"
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

// In its own process a loader's error is itself; elsewhere its text crosses. ErrNotFound is ErrNotFound everywhere,
// whatever wraps it, and sentinels of Config.Errors are found in every process that shares a failure. A loader that
// returns the panic of another one has not panicked.
func TestErrorsAcrossProcesses(t *testing.T) {
	each(t, func(f *fixture) {
		gone, broken := errors.New("sql: no rows"), errors.New("broken")
		g, other, _ := f.two(func(c *singleflight.Config[string]) { c.Errors, c.ErrorTTL = []error{gone, broken}, time.Minute })
		for key, cause := range map[string]error{
			"boom": errBoom, "nothing": singleflight.ErrNotFound, "panicked": singleflight.ErrLoaderPanicked, "gone": gone,
		} {
			first, l, _ := f.loading(g, key)
			waits := fetch(f, f.Context(), other, key, never(f))
			redistest.Eventually(f, "the other", func() bool { return f.Queued(key) == 1 })
			l.fails(fmt.Errorf("lookup: %w", cause))
			redistest.WantErr(f, first.Failed(), cause, redistest.Says("leasehold: singleflight: fetch "+f.Family+"/"+key+": lookup: "+cause.Error()))
			err := waits.Failed()
			if key == "nothing" {
				redistest.WantErr(f, err, cause)
				continue
			}
			var remote *singleflight.RemoteError
			redistest.Check(f, errors.As(err, &remote) && remote.Text == "lookup: "+cause.Error() && remote.Error() == remote.Text, "%v", err)
			redistest.WantText(f, err, "leasehold: singleflight: fetch "+f.Family+"/"+key+": lookup: "+cause.Error())
			redistest.Check(f, errors.Is(err, cause) == (key == "gone"), "%v matches %v", err, cause)
			redistest.WantNot(f, err, broken, singleflight.ErrNotFound, singleflight.ErrLoadTimeout, singleflight.ErrLoaderPanicked)
			redistest.Expect(f, inspect(f, other, key).Failure, remote.Text, "Failure is %v")
		}
	})
}

// With ErrorTTL a failure is remembered that long, in the whole fleet, and no
// longer; NotFoundTTL is for ErrNotFound alone, and as ErrorTTL where it is 0.
func TestErrorTTL(t *testing.T) {
	for what, c := range map[string]struct {
		err                error
		errorTTL, notFound time.Duration
		remembered         time.Duration
	}{
		"failure":               {errBoom, 5 * time.Second, 20 * time.Second, 5 * time.Second},
		"failure, a part of it": {errBoom, 1, 0, time.Millisecond},
		"not found":             {singleflight.ErrNotFound, 5 * time.Second, 20 * time.Second, 20 * time.Second},
		"not found as failures": {singleflight.ErrNotFound, 5 * time.Second, 0, 5 * time.Second},
		"only not found":        {singleflight.ErrNotFound, 0, 5 * time.Second, 5 * time.Second},
		"only not found else":   {errBoom, 0, 5 * time.Second, 0},
		"time-out":              {fmt.Errorf("%w", singleflight.ErrLoadTimeout), 5 * time.Second, 0, 5 * time.Second},
	} {
		subBubble(t, what, func(f *fixture) {
			mod := func(cfg *singleflight.Config[string]) {
				cfg.ErrorTTL, cfg.NotFoundTTL, cfg.Jitter = c.errorTTL, c.notFound, -1
			}
			g, other, _ := f.two(mod)
			redistest.WantErr(f, fetch(f, f.Context(), g, "k", fails(c.err)).Failed(), c.err)
			if c.remembered > 0 {
				time.Sleep(c.remembered - time.Microsecond)
				for _, h := range []*singleflight.Group[string]{g, other} {
					err := fetch(f, f.Context(), h, "k", never(f)).Failed()
					redistest.WantText(f, err, c.err.Error())
					for _, kind := range []error{singleflight.ErrNotFound, singleflight.ErrLoadTimeout, context.DeadlineExceeded} {
						redistest.Check(f, errors.Is(err, kind) == errors.Is(c.err, kind), "%v matches %v: %v", err, kind, errors.Is(err, kind))
					}
				}
				time.Sleep(time.Microsecond)
			}
			fetch(f, f.Context(), other, "k", gives("v")).want("v", singleflight.Loaded)
			fetch(f, f.Context(), g, "k", never(f)).want("v", singleflight.Cached)
		})
	}
}

// LoadTimeout ends the loader's ctx, and the load fails with an error of its own,
// whatever the loader makes of it: in this process and in another.
func TestLoadTimeout(t *testing.T) {
	for what, load := range map[string]func(o *origin) loader{
		"obeys":   func(o *origin) loader { return o.obedient },
		"ignores": func(o *origin) loader { return o.load },
		"says deadline exceeded": func(o *origin) loader {
			return func(ctx context.Context) (string, error) {
				_, _ = o.obedient(ctx)
				return "", ctx.Err()
			}
		},
	} {
		subBubble(t, what, func(f *fixture) {
			mod := func(c *singleflight.Config[string]) { c.LoadTimeout, c.LeaseTTL = 5*time.Second, time.Second }
			g, other, _ := f.two(mod)
			o := newOrigin(f)
			began := time.Now()
			all := []*pending[string]{fetch(f, f.Context(), g, "k", load(o))}
			l := o.next(f)
			defer l.returns("too late")
			all = append(all, fetch(f, f.Context(), g, "k", never(f)), fetch(f, f.Context(), other, "k", never(f)))
			for i, p := range all {
				err := p.Failed()
				redistest.WantErr(f, err, singleflight.ErrLoadTimeout, redistest.Not(context.DeadlineExceeded, context.Canceled, leasehold.ErrUnavailable))
				remote := new(singleflight.RemoteError)
				redistest.Check(f, errors.As(err, &remote) == (i == 2), "caller %d: %v", i, err)
			}
			redistest.Expect(f, time.Since(began), 5*time.Second, "it failed after %v")
			redistest.Expect(f, context.Cause(l.ctx), singleflight.ErrLoadTimeout, "the ctx ended by %v")
			redistest.Expect(f, fetch(f, f.Context(), other, "k", gives("v")).Got().Source, singleflight.Loaded, "it came from %v")
		})
	}
}

// Whatever a call waits for, it returns when its ctx ends, and leaves nothing behind: not in the queue, nor a lease.
func TestCtxEndsWhereverACallIs(t *testing.T) {
	const key = "k"
	for what, put := range map[string]func(w *harness.Wire, loads func(key string), o *origin) loader{
		"asking for the clock": func(w *harness.Wire, _ func(string), _ *origin) loader { w.Stall("time"); return nil },
		"taking the lease":     func(w *harness.Wire, _ func(string), _ *origin) loader { w.Stall("load enter"); return nil },
		"hearing of the lease": func(w *harness.Wire, _ func(string), _ *origin) loader { w.StallReplies("load enter"); return nil },
		"trying again":         func(w *harness.Wire, _ func(string), _ *origin) loader { w.CutOff("load enter"); return nil },
		"loading":              func(_ *harness.Wire, _ func(string), o *origin) loader { return o.obedient },
		"publishing":           func(w *harness.Wire, _ func(string), _ *origin) loader { w.Stall("load publish"); return gives("v") },
		"waiting for another":  func(_ *harness.Wire, loads func(string), _ *origin) loader { loads(key); return nil },
		"waiting for a permit": func(_ *harness.Wire, loads func(string), _ *origin) loader { loads("else"); return nil },
	} {
		for _, many := range []bool{false, true} {
			subBubble(t, fmt.Sprint(what, ", many: ", many), func(f *fixture) {
				g, other, w := f.two(maxLoads(1))
				load := put(w, func(key string) { f.loading(other, key) }, newOrigin(f))
				if load == nil {
					load = never(f)
				}
				ctx, cancel := context.WithCancel(f.Context())
				call := harness.Start(f.T, func() (string, error) {
					if !many {
						return g.Do(ctx, key, load)
					}
					return "", redistest.ErrorOf(g.DoMany(ctx, []string{key}, func(ctx context.Context, _ []string) (map[string]string, error) {
						v, err := load(ctx)
						return map[string]string{key: v}, err
					}))
				})
				synctest.Wait()
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				cancel()
				began := time.Now()
				redistest.WantErr(f, call.Failed(), context.Canceled, redistest.Says(f.Family+"/"+key))
				redistest.Expect(f, time.Since(began), 0, "it returned after %v")
				w.Heal()
				time.Sleep(20 * time.Second)
				held := int64(0)
				if what == "waiting for another" {
					held = 1 // the other's
				}
				n := f.RDB.ZCard(f.Context(), f.Part(key, "holders")).Val()
				redistest.Check(f, n == held && f.Queued(key) == 0, "%d leases are held, %d wait", n, f.Queued(key))
			})
		}
	}
}

// The text of a loader's error is that of its first use, and is cut for other processes, as that of a panic is. A text
// that never comes makes a load that takes too long.
func TestErrorWhoseTextChanges(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other, _ := f.two(func(c *singleflight.Config[string]) { c.LoadTimeout = time.Second })
		uses := 0
		changing := &hostileError{text: func() { uses++ }, long: 1 << 20}
		first, joins, waits := together(f, g, other, "k", func() (string, error) { return "", changing })
		for _, p := range []*pending[string]{first, joins, waits} {
			redistest.WantText(f, p.Failed(), ": hostilex")
			redistest.Require(f, p.Err.Error(), p.Err.Error(), "the text changes: %.200s")
		}
		redistest.Expect(f, uses, 1, "its text was asked for %d times")
		redistest.WantErr(f, first.Err, changing)
		redistest.AtLeast(f, len(first.Err.Error()), changing.long, "%d bytes are left where it is at home")
		redistest.Between(f, len(waits.Err.Error()), 4096, 5000, "%d bytes reached another process")
		_, _, waits = together(f, g, other, "k", func() (string, error) { panic(strings.Repeat("x", 1<<20)) })
		redistest.Between(f, len(waits.Failed().Error()), 4096, 5000, "%d bytes of a panic reached another process")
		over := make(chan struct{})
		defer close(over)
		first, joins, waits = together(f, g, other, "k", func() (string, error) { return "", &hostileError{text: func() { <-over }} })
		for _, p := range []*pending[string]{first, joins, waits} {
			redistest.WantErr(f, p.Failed(), singleflight.ErrLoadTimeout)
		}
	})
}

// Each of Config.Errors has a text of its own by which another process knows it, and can be compared.
func TestHostileSentinels(t *testing.T) {
	t.Parallel()
	good := errors.New("sold out")
	for want, all := range map[string][]error{
		"Errors [1] is nil; want an error":              {good, nil},
		`Errors [1] has the text "sold out" of another`: {good, errors.New("sold out")},
		"Errors [0] has a text of 0 bytes; want 1 to":   {errors.New("")},
		"Errors [0] has a text of 3 bytes; want 1 to":   {errors.New("a\x00b")},
		"Errors has 65; want at most 64":                make([]error, 65),
		"Errors [0] has no text":                        {&hostileError{text: panics}},
		"Errors [1] has no text":                        {good, &hostileError{text: runtime.Goexit}},
		"which cannot be compared":                      {uncomparable{}},
	} {
		_, err := singleflight.New(nowhere(t), singleflight.Config[int]{Name: "n", TTL: time.Minute, Errors: all})
		redistest.WantErr(t, err, leasehold.ErrInvalid, redistest.Says(want))
	}
}

type uncomparable []string

func (uncomparable) Error() string { return "uncomparable" }
