package singleflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// notHere is an error with a chain of its own.
type notHere struct{ code int }

func (e *notHere) Error() string { return fmt.Sprintf("code %d", e.code) }

// In its own process a loader's error is itself; elsewhere its text crosses. ErrNotFound is ErrNotFound everywhere,
// whatever wraps it.
func TestErrorsAcrossProcesses(t *testing.T) {
	each(t, func(f *fixture) {
		g, other := f.two()
		for key, cause := range map[string]error{"boom": &notHere{7}, "nothing": singleflight.ErrNotFound} {
			first, l, _ := f.loading(g, key)
			waits := fetch(f, f.Context(), other, key, never(f))
			redistest.Eventually(f, "the other", func() bool { return f.Queued(key) == 1 })
			l.fails(fmt.Errorf("lookup: %w", cause))
			redistest.WantErr(f, first.failed(), cause, redistest.Says("leasehold: singleflight: fetch "+f.Family+"/"+key+": lookup: "+cause.Error()))
			err := waits.failed()
			if key == "nothing" {
				redistest.WantErr(f, err, cause)
				fetch(f, f.Context(), other, key, gives("v")).want("v", singleflight.Loaded)
				continue
			}
			var remote *singleflight.RemoteError
			redistest.Check(f, errors.As(err, &remote) && remote.Text == "lookup: code 7" && remote.Error() == remote.Text, "%v", err)
			redistest.WantText(f, err, "leasehold: singleflight: fetch "+f.Family+"/boom: lookup: code 7")
			redistest.WantNot(f, err, cause, singleflight.ErrNotFound, singleflight.ErrLoadTimeout, singleflight.ErrLoaderPanicked)
		}
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
