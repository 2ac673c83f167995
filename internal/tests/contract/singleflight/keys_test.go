package singleflight

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// keysWith lists the keys in Redis that hold text.
func (f *fixture) keysWith(text string) (all []string) {
	f.Helper()
	f.OnEachPrimary(func(ctx context.Context, node redis.Cmdable) error {
		for cursor := uint64(0); ; {
			some, next, err := node.Scan(ctx, cursor, "*"+text+"*", 1000).Result()
			if err != nil {
				return err
			}
			all = append(all, some...)
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
	slices.Sort(all)
	return slices.Compact(all)
}

// Each part has the documented name, and a time to live.
func TestKeyNames(t *testing.T) {
	each(t, func(f *fixture) {
		for prefix, c := range map[string]struct {
			hash bool
			key  string
		}{"leasehold": {false, "a:b{c}"}, "team:app": {true, "ada@example.com"}} {
			mod := func(c2 *singleflight.Config[string]) {
				c2.HashKeys, c2.ErrorTTL, c2.StaleFor, c2.TTL = c.hash, time.Minute, time.Minute, time.Millisecond
				if prefix != "leasehold" {
					c2.Prefix = prefix
				}
			}
			tag := "a%3Ab%7Bc%7D"
			if c.hash {
				sum := sha256.Sum256([]byte(c.key))
				tag = hex.EncodeToString(sum[:16])
			}
			part := func(p string) string { return prefix + ":flt:{" + f.Family + ":" + tag + "}:" + p }
			want := func(parts ...string) {
				f.Helper()
				for _, p := range parts {
					left := f.RDB.PTTL(f.Context(), part(p)).Val()
					redistest.Check(f, left > 0 && left <= 3*time.Minute, "%s has %v to live", part(p), left)
				}
			}
			g, _ := f.open(mod)
			other, _ := f.open(mod)
			fetch(f, f.Context(), g, c.key, gives("v")).got()
			want("value", "fence")
			time.Sleep(5 * time.Millisecond) // its TTL is over
			redistest.CheckNow(f, fetch(f, f.Context(), g, c.key, fails(errors.New("boom"))).got().Source == singleflight.Stale, "not stale")
			redistest.Eventually(f, "the failure", func() bool { return inspect(f, g, c.key).Failure != "" })
			want("value", "failure", "landed", "fence")
			redistest.WantErr(f, g.Invalidate(f.Context(), c.key))
			o := newOrigin(f)
			first := fetch(f, f.Context(), g, c.key, o.load)
			l := o.next(f)
			second := fetch(f, f.Context(), other, c.key, never(f))
			redistest.Eventually(f, "the other", func() bool { return inspect(f, g, c.key).Waiting == 1 })
			want("holders", "queue", "alive", "fence")
			redistest.WantErr(f, g.Invalidate(f.Context(), c.key))
			want("aside")
			l.returns("v")
			first.got()
			second.got()
			if !c.hash {
				continue
			}
			all := f.keysWith("ada@")
			redistest.Check(f, len(all) == 0, "keys show what was to be hashed: %v", all)
		}
		for _, k := range f.keysWith(f.Family) {
			if left := f.RDB.PTTL(f.Context(), k).Val(); left < 0 && left != -2 {
				f.Errorf("%s stays for ever", k)
			}
		}
	})
}

// With HashKeys a key shows in no error and no log either.
func TestHashedKeysShowNowhere(t *testing.T) {
	bubble(t, func(f *fixture, _ *miniredis.Miniredis) {
		const key = "ada@example.com"
		var log bytes.Buffer
		hash := func(c *singleflight.Config[string]) {
			c.HashKeys, c.MaxValueBytes, c.Logger = true, 10, slog.New(slog.NewTextHandler(&log, nil))
			c.StaleFor, c.TTL = time.Minute, time.Second
		}
		g, wire := f.open(hash)
		boom := errors.New("boom")
		var errs []error
		try := func(err error) { errs = append(errs, err) }
		try(fetch(f, f.Context(), g, key, fails(boom)).failed())
		_, err := g.DoMany(f.Context(), []string{key}, func(context.Context, []string) (map[string]string, error) { return nil, boom })
		try(err)
		panics := fetch(f, f.Context(), g, key, func(context.Context) (string, error) { panic("oh") })
		redistest.Get(f, "the panic", panics.done)
		fetch(f, f.Context(), g, key, gives("short")).got()
		time.Sleep(2 * time.Second)
		fetch(f, f.Context(), g, key, fails(boom)).got() // stale, and its refresh fails
		synctest.Wait()
		redistest.WantErr(f, g.Invalidate(f.Context(), key))
		fetch(f, f.Context(), g, key, gives("far too long a value")).got()
		sum := sha256.Sum256([]byte(key))
		label := hex.EncodeToString(sum[:16])
		f.RDB.Set(f.Context(), f.Part(label, "value"), "garbage", time.Minute)
		fetch(f, f.Context(), g, key, gives("short")).got()
		ended, end := context.WithCancel(f.Context())
		end()
		_, _, err = g.Peek(ended, key)
		try(err)
		wire.Cut()
		_, err = g.Do(f.Context(), key, never(f))
		try(err)
		try(g.Invalidate(f.Context(), key))
		_, err = g.Inspect(f.Context(), key)
		try(err)
		wire.Heal()
		harness.Close(f, g)
		_, err = g.Do(f.Context(), key, never(f))
		try(err)
		for _, err := range errs {
			redistest.WantText(f, err, f.Family+"/"+label)
			redistest.Check(f, !strings.Contains(err.Error(), "ada@"), "%v", err)
		}
		n := strings.Count(log.String(), "leasehold: singleflight: ")
		redistest.Check(f, n == 5 && !strings.Contains(log.String(), "ada@"), "%d lines:\n%s", n, log.String())
	})
}
