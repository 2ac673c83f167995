package singleflight

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Peek shows what is cached, fresh or stale, and a remembered ErrNotFound; it
// loads nothing, counts nothing, and is one GET.
func TestPeek(t *testing.T) {
	bubble(t, func(f *fixture) {
		for what, mod := range map[string]config{
			"StaleFor": func(c *singleflight.Config[string]) {
				c.TTL, c.Jitter, c.NotFoundTTL, c.StaleFor = 10*time.Second, -1, 5*time.Second, 20*time.Second
			},
			"StaleIfError": func(c *singleflight.Config[string]) {
				c.TTL, c.Jitter, c.NotFoundTTL, c.StaleIfError = 10*time.Second, -1, 5*time.Second, 20*time.Second
			},
		} {
			g, wire := f.open(mod)
			want := func(value string, source singleflight.Source, age time.Duration) {
				f.Helper()
				r, there, err := g.Peek(f.Context(), what)
				if err != nil || there != (source != 0) || r.Value != value || r.Source != source || r.Age != age {
					f.Fatalf("%+v, %v, %v; want %q, %v, %v", r, there, err, value, source, age)
				}
			}
			want("", 0, 0)
			fetch(f, f.Context(), g, what, gives("v")).Got()
			want("v", singleflight.Cached, 0)
			time.Sleep(10*time.Second - 1)
			want("v", singleflight.Cached, (10*time.Second - 1).Truncate(time.Microsecond))
			time.Sleep(time.Nanosecond)
			want("v", singleflight.Stale, 10*time.Second)
			time.Sleep(20*time.Second - time.Millisecond)
			want("v", singleflight.Stale, 30*time.Second-time.Millisecond)
			time.Sleep(time.Millisecond)
			want("", 0, 0)
			redistest.WantErr(f, fetch(f, f.Context(), g, what, fails(singleflight.ErrNotFound)).Failed(), singleflight.ErrNotFound)
			r, there, err := g.Peek(f.Context(), what)
			redistest.WantErr(f, err, singleflight.ErrNotFound, redistest.Says("singleflight: peek "+f.Family+"/"+what))
			redistest.CheckNow(f, there && r == (singleflight.Result[string]{}), "%+v, %v", r, there)
			time.Sleep(5 * time.Second)
			want("", 0, 0)
			synctest.Wait()
			before, gets := g.Stats(), wire.Sent("get")
			want("", 0, 0)
			s := g.Stats()
			redistest.Check(f, s == before && wire.Sent("get") == gets+1, "%+v, before %+v, %d GETs", s, before, wire.Sent("get")-gets)
			ended, end := context.WithCancel(f.Context())
			end()
			_, there, err = g.Peek(ended, what)
			redistest.WantErr(f, err, context.Canceled)
			redistest.Check(f, !there, "there")
		}
	})
}

// Each field of State through a life.
func TestInspect(t *testing.T) {
	bubble(t, func(f *fixture) {
		mod := func(c *singleflight.Config[string]) {
			c.Label = "a loader:1"
			c.TTL, c.Jitter, c.StaleFor, c.ErrorTTL, c.NotFoundTTL = 10*time.Second, -1, 20*time.Second, 3*time.Second, 4*time.Second
		}
		g, other := f.two(mod)
		o := newOrigin(f)
		const key = "k"
		want := func(want singleflight.State) {
			f.Helper()
			synctest.Wait()
			s := inspect(f, other, key)
			redistest.CheckNow(f, (s.LoadID != "") == want.Loading && len(s.LoadID) <= 40, "the load's id is %q", s.LoadID)
			s.LoadID = ""
			if want.Loading {
				want.LoadLabel = "a loader:1"
			}
			redistest.CheckNow(f, s == want, "%+v\nwant %+v", s, want)
		}
		want(singleflight.State{})
		first, l := begin(f, f.Context(), g, key, o, o.load)
		time.Sleep(time.Second)
		want(singleflight.State{Loading: true, LoadingFor: time.Second, LeaseEndsIn: 9 * time.Second})
		second, third := fetch(f, f.Context(), other, key, o.load), fetch(f, f.Context(), other, key, o.load)
		want(singleflight.State{Loading: true, LoadingFor: time.Second, LeaseEndsIn: 9 * time.Second, Waiting: 1})
		id := inspect(f, g, key).LoadID
		l.returns("value")
		for _, p := range []*pending[string]{first, second, third} {
			p.Got()
		}
		time.Sleep(time.Second)
		bytes := int(f.RDB.StrLen(f.Context(), f.Part(key, "value")).Val())
		redistest.CheckNow(f, bytes >= len("value"), "%d bytes", bytes)
		want(singleflight.State{Cached: true, Age: time.Second, FreshFor: 9 * time.Second, KeptFor: 29 * time.Second, Bytes: bytes})

		time.Sleep(10 * time.Second)
		want(singleflight.State{Cached: true, Age: 11 * time.Second, KeptFor: 19 * time.Second, Bytes: bytes})
		fetch(f, f.Context(), g, key, fails(errBoom)).Got()
		time.Sleep(time.Second)
		want(singleflight.State{
			Cached: true, Age: 12 * time.Second, KeptFor: 18 * time.Second, Bytes: bytes, Failure: "boom", FailedFor: 2 * time.Second,
		})

		time.Sleep(2 * time.Second)
		fetch(f, f.Context(), g, key, o.load).Got()
		l = o.next(f)
		redistest.WantErr(f, other.Invalidate(f.Context(), key))
		want(singleflight.State{Invalidated: 1})
		newer, l2 := begin(f, f.Context(), other, key, o, o.load)
		want(singleflight.State{Invalidated: 1, Loading: true, LeaseEndsIn: 10 * time.Second})
		again := inspect(f, g, key).LoadID
		redistest.Check(f, again != id && again != "", "two loads are called %q", id)
		l.returns("old")
		want(singleflight.State{Loading: true, LeaseEndsIn: 10 * time.Second})
		l2.fails(singleflight.ErrNotFound)
		newer.Failed()
		bytes = int(f.RDB.StrLen(f.Context(), f.Part(key, "value")).Val())
		want(singleflight.State{Cached: true, NotFound: true, FreshFor: 4 * time.Second, KeptFor: 5 * time.Second, Bytes: bytes})
	})
}

// Each part has the documented name, and a time to live. With HashKeys no name shows the key.
func TestKeyNames(t *testing.T) {
	each(t, func(f *fixture) {
		for tag, key := range map[string]string{"a%3Ab%7Bc%7D": "a:b{c}", hashed("ada@example.com"): "ada@example.com"} {
			g, other := f.two(func(c *singleflight.Config[string]) {
				c.Prefix, c.HashKeys, c.ErrorTTL, c.StaleFor, c.TTL = f.Family, tag == hashed(key), time.Minute, time.Minute, time.Millisecond
			})
			want := func(parts ...string) {
				f.Helper()
				for _, p := range parts {
					name := f.Family + ":flt:{" + f.Family + ":" + tag + "}:" + p
					left := f.RDB.PTTL(f.Context(), name).Val()
					redistest.Check(f, left > 0 && left <= 3*time.Minute, "%s has %v to live", name, left)
				}
			}
			fetch(f, f.Context(), g, key, gives("v")).Got()
			want("value", "fence")
			redistest.Eventually(f, "the end of the TTL", func() bool { return inspect(f, g, key).FreshFor == 0 })
			redistest.CheckNow(f, fetch(f, f.Context(), g, key, fails(errBoom)).Got().Source == singleflight.Stale, "not stale")
			redistest.Eventually(f, "the failure", func() bool { return inspect(f, g, key).Failure != "" })
			want("value", "failure", "landed", "fence")
			redistest.WantErr(f, g.Invalidate(f.Context(), key))
			first, l, _ := f.loading(g, key)
			second := fetch(f, f.Context(), other, key, never(f))
			redistest.Eventually(f, "the other", func() bool { return inspect(f, g, key).Waiting == 1 })
			want("holders", "queue", "alive", "fence")
			redistest.WantErr(f, g.Invalidate(f.Context(), key))
			want("aside")
			l.returns("v")
			first.Got()
			second.Got()
		}
		for _, name := range f.Keys() {
			left := f.RDB.PTTL(f.Context(), name).Val()
			redistest.Check(f, left >= 0 || left == -2, "%s stays for ever", name)
			redistest.Check(f, !strings.Contains(name, "ada@"), "%s shows what was to be hashed", name)
		}
	})
}

// hashed is what HashKeys puts in place of a key.
func hashed(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}

// With HashKeys a key shows in no error and no log either.
func TestHashedKeysShowNowhere(t *testing.T) {
	bubble(t, func(f *fixture) {
		const key = "ada@example.com"
		var log bytes.Buffer
		hash := func(c *singleflight.Config[string]) {
			c.HashKeys, c.MaxValueBytes, c.Logger = true, 10, slog.New(slog.NewTextHandler(&log, nil))
			c.StaleFor, c.TTL = time.Minute, time.Second
		}
		g, wire := f.open(hash)
		var errs []error
		try := func(err error) { errs = append(errs, err) }
		try(fetch(f, f.Context(), g, key, fails(errBoom)).Failed())
		_, err := g.DoMany(f.Context(), []string{key}, func(context.Context, []string) (map[string]string, error) { return nil, errBoom })
		try(err)
		panics := fetch(f, f.Context(), g, key, func(context.Context) (string, error) { panic("oh") })
		redistest.Get(f, "the panic", panics.Done)
		fetch(f, f.Context(), g, key, gives("short")).Got()
		time.Sleep(2 * time.Second)
		fetch(f, f.Context(), g, key, fails(errBoom)).Got() // stale, and its refresh fails
		synctest.Wait()
		redistest.WantErr(f, g.Invalidate(f.Context(), key))
		fetch(f, f.Context(), g, key, gives("far too long a value")).Got()
		label := hashed(key)
		f.RDB.Set(f.Context(), f.Part(label, "value"), "garbage", time.Minute)
		fetch(f, f.Context(), g, key, gives("short")).Got()
		tryAll := func(ctx context.Context) { errs = slices.AppendSeq(errs, maps.Values(everyCall(f, ctx, g, key))) }
		ended, end := context.WithCancel(f.Context())
		end()
		tryAll(ended)
		wire.Cut()
		tryAll(f.Context())
		wire.Heal()
		harness.Close(f, g)
		try(redistest.ErrorOf(g.Do(f.Context(), key, never(f))))
		for _, err := range errs {
			redistest.WantText(f, err, f.Family+"/"+label)
			redistest.Check(f, !strings.Contains(err.Error(), "ada@"), "%v", err)
		}
		n := strings.Count(log.String(), "leasehold: singleflight: ")
		redistest.Check(f, n == 5 && !strings.Contains(log.String(), "ada@"), "%d lines:\n%s", n, log.String())
	})
}
