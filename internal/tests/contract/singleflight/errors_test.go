package singleflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// notHere is an error with a chain of its own.
type notHere struct{ code int }

func (e *notHere) Error() string { return fmt.Sprintf("code %d", e.code) }

// In its own process a loader's error is itself; elsewhere its text crosses.
func TestErrorsAcrossProcesses(t *testing.T) {
	each(t, func(f *fixture) {
		g, other := f.two()
		first, l, _ := f.loading(g, "k")
		waits := fetch(f, f.Context(), other, "k", never(f))
		redistest.Eventually(f, "the other", func() bool { return f.Queued("k") == 1 })
		boom := fmt.Errorf("lookup: %w", &notHere{7})
		l.fails(boom)
		redistest.WantErr(f, first.failed(), boom, redistest.Says("leasehold: singleflight: fetch "+f.Family+"/k: lookup: code 7"))
		err := waits.failed()
		var remote *singleflight.RemoteError
		redistest.Check(f, errors.As(err, &remote) && remote.Text == "lookup: code 7" && remote.Error() == remote.Text, "%v", err)
		redistest.WantText(f, err, "leasehold: singleflight: fetch "+f.Family+"/k: lookup: code 7")
		redistest.WantNot(f, err, boom, singleflight.ErrNotFound, singleflight.ErrLoadTimeout, singleflight.ErrLoaderPanicked)
	})
}

// What crosses of an error is at most 4 KiB, in whole characters; a panic's text too.
func TestLongErrorsAreCut(t *testing.T) {
	some(t, func(f *fixture) {
		g, other := f.two()
		for name, text := range map[string]string{
			"just": strings.Repeat("x", 4096), "long": strings.Repeat("x", 100_000), "cut": "xx" + strings.Repeat("€", 5000),
			"bytes": "\xff\x00", "many bytes": strings.Repeat("\xffx", 5000),
		} {
			for _, panics := range []bool{false, true} {
				key := fmt.Sprint(name, panics)
				first, l, _ := f.loading(g, key)
				waits := fetch(f, f.Context(), other, key, never(f))
				redistest.Eventually(f, "the other", func() bool { return f.Queued(key) == 1 })
				if panics {
					l.does(func() { panic(text) })
					redistest.Get(f, "the panic", first.done)
				} else {
					l.fails(errors.New(text))
					redistest.WantText(f, first.failed(), text) // where it is at home it is whole
				}
				var remote *singleflight.RemoteError
				err := waits.failed()
				redistest.CheckNow(f, errors.As(err, &remote), "%s: %.100v", key, err)
				redistest.Check(f, utf8.ValidString(remote.Text) && len(remote.Text) <= 4096 && len(remote.Text) >= min(len(text), 2000),
					"%s: %d bytes, %.20q…", key, len(remote.Text), remote.Text)
				crossed := strings.TrimPrefix(remote.Text, "the loader panicked: ")
				redistest.Check(f, !utf8.ValidString(text) || strings.HasPrefix(text, crossed), "%s: %.40q… is no part of it", key, remote.Text)
			}
		}
	})
}

// ErrNotFound is ErrNotFound everywhere, whatever wraps it, and for late callers only where it is remembered.
func TestNotFoundAcrossProcesses(t *testing.T) {
	each(t, func(f *fixture) {
		for _, remember := range []time.Duration{0, time.Minute} {
			other, g, wire := f.pair(func(c *singleflight.Config[string]) { c.NotFoundTTL = remember })
			key := remember.String()
			first, l, _ := f.loading(g, key)
			waits := fetch(f, f.Context(), other, key, never(f))
			redistest.Eventually(f, "the other", func() bool { return f.Queued(key) == 1 })
			l.fails(fmt.Errorf("users: %w", singleflight.ErrNotFound))
			for _, p := range []*pending[string]{first, waits} {
				redistest.WantErr(f, p.failed(), singleflight.ErrNotFound)
			}
			if remember == 0 {
				fetch(f, f.Context(), other, key, gives("v")).want("v", singleflight.Loaded)
				continue
			}
			gets, enters := wire.Sent("get"), wire.Sent("load enter")
			err := fetch(f, f.Context(), other, key, never(f)).failed()
			redistest.WantErr(f, err, singleflight.ErrNotFound)
			remote := new(singleflight.RemoteError)
			redistest.Check(f, !errors.As(err, &remote), "%v", err)
			if gets, enters = wire.Sent("get")-gets, wire.Sent("load enter")-enters; gets != 1 || enters != 0 {
				f.Errorf("a remembered ErrNotFound costs %d GETs and %d scripts", gets, enters)
			}
		}
	})
}

// With ErrorTTL 0 the waiters get the failure, also one that missed the message; a later caller loads.
func TestFailureIsSharedWithWaitersOnly(t *testing.T) {
	bubble(t, func(f *fixture) {
		other, g, wire := f.pair()
		first, l, _ := f.loading(g, "k")
		fetch(f, f.Context(), other, "warm", gives("v")).got() // it is connected
		wire.HoldDials()                                       // so that it can't subscribe, and misses the message
		waits := fetch(f, f.Context(), other, "k", never(f))
		joins := fetch(f, f.Context(), g, "k", never(f))
		synctest.Wait()
		l.fails(errors.New("boom"))
		synctest.Wait()
		redistest.Check(f, !waits.ended(), "it had a message")
		for _, p := range []*pending[string]{first, joins, waits} {
			redistest.WantText(f, p.failed(), "boom")
		}
		wire.Heal()
		for _, h := range []*singleflight.Group[string]{g, other} {
			fetch(f, f.Context(), h, "k", gives("v")).want("v", singleflight.Loaded)
			redistest.WantErr(f, h.Invalidate(f.Context(), "k"))
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
		"failure":               {errors.New("boom"), 5 * time.Second, 20 * time.Second, 5 * time.Second},
		"failure, a part of it": {errors.New("boom"), 1, 0, time.Millisecond},
		"not found":             {singleflight.ErrNotFound, 5 * time.Second, 20 * time.Second, 20 * time.Second},
		"not found as failures": {singleflight.ErrNotFound, 5 * time.Second, 0, 5 * time.Second},
		"only not found":        {singleflight.ErrNotFound, 0, 5 * time.Second, 5 * time.Second},
		"only not found else":   {errors.New("boom"), 0, 5 * time.Second, 0},
		"time-out":              {fmt.Errorf("%w", singleflight.ErrLoadTimeout), 5 * time.Second, 0, 5 * time.Second},
	} {
		subBubble(t, what, func(f *fixture) {
			mod := func(cfg *singleflight.Config[string]) {
				cfg.ErrorTTL, cfg.NotFoundTTL, cfg.Jitter = c.errorTTL, c.notFound, -1
			}
			g, other := f.two(mod)
			redistest.WantErr(f, fetch(f, f.Context(), g, "k", fails(c.err)).failed(), c.err)
			if c.remembered > 0 {
				time.Sleep(c.remembered - time.Microsecond)
				for _, h := range []*singleflight.Group[string]{g, other} {
					err := fetch(f, f.Context(), h, "k", never(f)).failed()
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

// A remembered failure is kept apart from the value: what is fresh yet is
// served, and a value that comes ends the failure.
func TestRememberedFailureBesideAValue(t *testing.T) {
	bubble(t, func(f *fixture) {
		mod := func(c *singleflight.Config[string]) {
			c.TTL, c.StaleFor, c.ErrorTTL, c.Jitter = 10*time.Second, 10*time.Second, time.Minute, -1
		}
		g, _ := f.open(mod)
		f.stalled(g, "k")
		fetch(f, f.Context(), g, "k", fails(errors.New("boom"))).want("old", singleflight.Stale)
		synctest.Wait()
		s := inspect(f, g, "k")
		redistest.CheckNow(f, s.Cached && s.Failure == "boom", "%+v", s)
		fetch(f, f.Context(), g, "k", never(f)).want("old", singleflight.Stale)
		time.Sleep(10 * time.Second)
		redistest.WantText(f, fetch(f, f.Context(), g, "k", never(f)).failed(), "boom") // no longer stale, not yet to be loaded
		time.Sleep(50 * time.Second)
		fetch(f, f.Context(), g, "k", gives("new")).want("new", singleflight.Loaded)
		redistest.Expect(f, inspect(f, g, "k").Failure, "", "Failure is %v")
	})
}
