package mutex

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestMutexNewNamesEveryBadField(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	for _, c := range []struct {
		cfg mutex.Config
		bad []string
	}{
		{mutex.Config{Name: "n", TTL: 100 * time.Millisecond}, nil},
		{mutex.Config{Name: "n", LocalFor: time.Millisecond}, nil},
		{mutex.Config{Name: "n", LocalFor: time.Second}, nil},
		{mutex.Config{Name: "n", LocalFor: 50 * time.Millisecond, TTL: 100 * time.Millisecond}, nil},
		{mutex.Config{Name: "n", LocalFor: 51 * time.Millisecond, TTL: 100 * time.Millisecond}, []string{"LocalFor is 51ms; want 1ms to 50ms"}},
		{mutex.Config{Name: "n", LocalFor: time.Second + 1}, []string{"LocalFor is 1.000000001s; want 1ms to 1s"}},
		{mutex.Config{Name: "n", LocalFor: time.Millisecond - 1}, []string{"LocalFor is 999.999µs; want 1ms to 1s"}},
		{mutex.Config{Name: "n", LocalFor: -1}, []string{"LocalFor is -1ns; want 1ms to 1s"}},
		{
			mutex.Config{TTL: time.Millisecond, MaxHold: -1, MaxWaiters: -2, Prefix: "}"},
			[]string{"Name", "empty", "512", "TTL", "1ms", "100ms", "MaxHold", "-1ns", "MaxWaiters", "-2", "Prefix", "}"},
		},
	} {
		m, err := mutex.New(rdb, c.cfg)
		if c.bad == nil {
			redistest.Check(t, err == nil, "%+v: %v", c.cfg, err)
			continue
		}
		redistest.CheckNow(t, m == nil, "%+v is accepted", c.cfg)
		redistest.WantText(t, err, append(c.bad, "leasehold: mutex: ")...)
		redistest.Check(t, !strings.Contains(err.Error(), "Limit"), "%q names a field that there is not", err)
	}
	redistest.WantText(t, redistest.ErrorOf(mutex.New(nil, mutex.Config{Name: "n"})), "rdb")
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
		redistest.AtLeast(f, f.RDB.PTTL(f.Context(), f.Part("k", "fence")).Val(), time.Hour, "the last token is kept for %v")
		redistest.WantErr(f, l.Unlock())
		state, err = m.Inspect(f.Context(), "k")
		redistest.CheckNow(f, err == nil && !state.Held && state.Holder == nil && state.LastToken == l.Token(), "%+v, %v", state, err)
	})
}
