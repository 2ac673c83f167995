package mutex

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestKeyNamesAreAsDocumentedAndExpire(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open(func(c *mutex.Config) { c.Prefix = f.Family })
		base := fmt.Sprintf("%s:mtx:{%s:%%25%%00}:", f.Family, f.Family)
		check := func(parts ...string) {
			f.Helper()
			for i := range parts {
				parts[i] = base + parts[i]
			}
			got := f.Keys()
			redistest.CheckNow(f, slices.Equal(got, parts), "the keys are %q, want %q", got, parts)
			for _, key := range got {
				left := f.RDB.PTTL(f.Context(), key).Val()
				redistest.CheckNow(f, left != -1, "%s never expires", key)
			}
		}
		l := f.take(m, "%\x00")
		check("fence", "holders")
		redistest.AtLeast(f, f.RDB.PTTL(f.Context(), base+"fence").Val(), time.Hour, "the last token is kept for %v")
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(f.Context())
		go func() {
			_, err := m.Lock(ctx, "%\x00")
			ended <- err
		}()
		redistest.Eventually(f, "the keys of a waiter", func() bool { return len(f.Keys()) == 4 })
		check("alive", "fence", "holders", "queue")
		cancel()
		redistest.Get(f, "the waiter", ended)
		unlock(f, l)
		redistest.Eventually(f, "all but the last token to be gone", func() bool { return len(f.Keys()) == 1 })
		check("fence")
	})
}

func TestMutexNewNamesEveryBadField(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	m, err := mutex.New(rdb, mutex.Config{TTL: time.Millisecond, MaxHold: -1, MaxWaiters: -2, Prefix: "}"})
	redistest.CheckNow(t, m == nil, "it is accepted")
	redistest.WantText(t, err, "leasehold: mutex: ", "Name", "empty", "512", "TTL", "1ms", "100ms", "MaxHold", "-1ns", "MaxWaiters", "-2", "Prefix", "}")
	redistest.CheckNow(t, !strings.Contains(err.Error(), "Limit"), "%q names a field that there is not", err)
	_, err = mutex.New(nil, mutex.Config{Name: "n"})
	redistest.WantText(t, err, "rdb")
	if _, err = mutex.New(rdb, mutex.Config{Name: "n", TTL: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
}

// Inspect shows the holder with its ID, label and time, the last token, and the
// waiters; of a key that nobody holds it shows the token alone.
func TestInspect(t *testing.T) {
	each(t, func(f *fixture) {
		m, _ := f.open(func(c *mutex.Config) { c.Label = "here" })
		state, err := m.Inspect(f.Context(), "k")
		redistest.CheckNow(f, err == nil && !state.Held && state.Holder == nil && state.LastToken == 0 && state.Waiting == 0,
			"%+v, %v", state, err)
		l := redistest.Must(m.TryLock(f.Context(), "k"))(f)
		state, err = m.Inspect(f.Context(), "k")
		redistest.CheckNow(f, err == nil && state.Held && state.LastToken == l.Token(), "%+v, %v", state, err)
		h := state.Holder
		if h.ID != l.ID() || h.Label != "here" || h.Permits != 1 || h.Since.UnixMicro() != int64(l.Token()) || h.ExpiresIn <= 0 || h.ExpiresIn > 30*time.Second {
			f.Fatalf("%+v", h)
		}
		redistest.WantErr(f, l.Unlock())
		state, err = m.Inspect(f.Context(), "k")
		redistest.CheckNow(f, err == nil && !state.Held && state.Holder == nil && state.LastToken == l.Token(), "%+v, %v", state, err)
	})
}
