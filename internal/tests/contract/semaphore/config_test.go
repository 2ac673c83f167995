package semaphore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func nowhere(t *testing.T) redis.UniversalClient {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestNewNamesEveryBadField(t *testing.T) {
	long := strings.Repeat("x", 513)
	for _, c := range []struct {
		cfg  semaphore.Config
		want []string // of each bad field: name, value, bound
	}{
		{semaphore.Config{}, []string{"Name", "empty", "512", "Limit", "0", "1 to 100000"}},
		{semaphore.Config{
			Name: long, Limit: 100_001, TTL: 99 * time.Millisecond, MaxHold: -time.Second, MaxWaiters: -1, Prefix: long + "{",
		}, []string{
			"Name", "513", "1 to 512", "Limit", "100001", "1 to 100000", "TTL", "99ms", "100ms", "MaxHold", "-1s",
			"MaxWaiters", "-1", "Prefix", "514", "at most 512", "{",
		}},
		{semaphore.Config{Name: "n", Limit: -5, TTL: -time.Second}, []string{"Limit", "-5", "TTL", "-1s"}},
		{semaphore.Config{Name: "n", Limit: 1, Prefix: "a}b"}, []string{"Prefix", "}"}},
		{semaphore.Config{Name: "n", Limit: 1, Prefix: "a\nb"}, []string{"Prefix", `\n`}},
		{semaphore.Config{Name: "n", Limit: 1, Label: long[:65]}, []string{"Label has 65 bytes; want at most 64"}},
		{semaphore.Config{Name: "n", Limit: 1, Total: 2, KeepFor: time.Second}, []string{"KeepFor is 1s, and Total is 2; want one of them to be 0"}},
		{semaphore.Config{Name: "n", Limit: 1, Total: 2, LocalFor: time.Second}, []string{"LocalFor is 1s, and Total is 2; want one of them to be 0"}},
		{semaphore.Config{Name: "n", Limit: 1, KeepFor: -1}, []string{"KeepFor is -1ns; want 1ms to 10s"}},
		{semaphore.Config{Name: "n", Limit: 1, KeepFor: time.Microsecond}, []string{"KeepFor is 1µs; want 1ms to 10s"}},
		{semaphore.Config{Name: "n", Limit: 1, KeepFor: 10*time.Second + 1}, []string{"KeepFor is 10.000000001s; want 1ms to 10s"}},
		{
			semaphore.Config{Name: "n", Limit: 1, TTL: time.Second, KeepFor: 501 * time.Millisecond},
			[]string{"KeepFor is 501ms; want 1ms to 500ms (half of TTL"},
		},
		{semaphore.Config{Name: "n", Limit: 1, LocalFor: -1}, []string{"LocalFor is -1ns; want 1ms to 1s"}},
		{semaphore.Config{Name: "n", Limit: 1, LocalFor: time.Millisecond - 1}, []string{"LocalFor is 999.999µs; want 1ms to 1s"}},
		{semaphore.Config{Name: "n", Limit: 1, LocalFor: time.Second + 1}, []string{"LocalFor is 1.000000001s; want 1ms to 1s"}},
		{
			semaphore.Config{Name: "n", Limit: 1, TTL: 100 * time.Millisecond, LocalFor: 51 * time.Millisecond},
			[]string{"LocalFor is 51ms; want 1ms to 50ms"},
		},
		// These are bounds.
		{semaphore.Config{Name: "n", Limit: 1, LocalFor: time.Millisecond}, nil},
		{semaphore.Config{Name: "n", Limit: 1, LocalFor: time.Second}, nil},
		{semaphore.Config{Name: "n", Limit: 1, TTL: 100 * time.Millisecond, LocalFor: 50 * time.Millisecond}, nil},
		{semaphore.Config{Name: "n", Limit: 1}, nil},
		{semaphore.Config{Name: "n", Limit: 1, TTL: time.Second, KeepFor: 500 * time.Millisecond}, nil},
		{semaphore.Config{Name: strings.Repeat("{", 512), Limit: 100_000, TTL: 100 * time.Millisecond, MaxHold: 1, MaxWaiters: 1}, nil},
		{semaphore.Config{Name: "\x00:}", Limit: 1, Prefix: strings.Repeat("a:", 256), HashKeys: true}, nil},
	} {
		s, err := semaphore.New(nowhere(t), c.cfg)
		if c.want == nil {
			redistest.Expect(t, err, nil, "%+v: %v", c.cfg)
			continue
		}
		redistest.Check(t, s == nil, "%+v is accepted", c.cfg)
		redistest.WantErr(t, err, leasehold.ErrInvalid, redistest.Says(append(c.want, "leasehold: semaphore: ")...))
		for _, good := range []string{"Name", "Limit", "TTL", "MaxHold", "MaxWaiters", "Prefix"} {
			redistest.Check(t, slices.Contains(c.want, good) || !strings.Contains(err.Error(), good+" "), "%q names %s, which is good", err, good)
		}
	}
	redistest.WantText(t, redistest.ErrorOf(semaphore.New(nil, semaphore.Config{})), "rdb", "Name", "Limit")
}

// What cannot be asked for is refused by name, value and bound, before anything is sent. Nor does a ctx that has ended
// send anything, and an Extend that did not extend does not say that it did.
func TestBadCallsSendNothing(t *testing.T) {
	some(t, func(f *fixture) {
		s, wire := f.open(limit(5000), ttl(30*time.Second))
		ctx, invalid := f.Context(), leasehold.ErrInvalid
		for n, want := range map[int]string{0: "0", -1: "-1", 1001: "1001"} {
			for _, acquire := range []func(context.Context, string, int) (*semaphore.Lease, error){s.AcquireN, s.TryAcquireN} {
				redistest.WantErr(f, redistest.ErrorOf(acquire(ctx, "k", n)), invalid, redistest.Says("n is "+want, "1 to 1000", f.Family+"/k"))
			}
		}
		for key, want := range map[string]string{"": "empty", strings.Repeat("x", 513): "513"} {
			for _, acquire := range []func(context.Context, string) (*semaphore.Lease, error){s.Acquire, s.TryAcquire} {
				redistest.WantErr(f, redistest.ErrorOf(acquire(ctx, key)), invalid, redistest.Says("key", want, "1 to 512", f.Family))
			}
			redistest.WantText(f, s.Do(ctx, key, nil), "key", want, "1 to 512")
			redistest.WantErr(f, redistest.ErrorOf(s.Inspect(ctx, key)), invalid, redistest.Says("key", want, "1 to 512"))
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		redistest.WantErr(f, redistest.ErrorOf(s.Acquire(ended, "k")), context.Canceled, redistest.Not(leasehold.ErrUnavailable))
		redistest.WantErr(f, redistest.ErrorOf(s.TryAcquire(ended, "k")), context.Canceled, redistest.Not(leasehold.ErrUnavailable))
		redistest.WantErr(f, redistest.ErrorOf(s.Inspect(ended, "k")), context.Canceled, redistest.Not(leasehold.ErrUnavailable))
		redistest.Require(f, wire.Sent(), 0, "%d commands were sent")
		l := f.take(s, strings.Repeat("x", 512), 1000)
		sent := wire.Sent()
		for _, d := range []time.Duration{0, -time.Second, 99 * time.Millisecond} {
			redistest.WantErr(f, l.Extend(ctx, d), invalid, redistest.Says("ttl is "+fmt.Sprint(d), "100ms"))
		}
		for range 2000 { // of two things that are ready, a select takes any
			redistest.WantErr(f, l.Extend(ended, time.Hour), context.Canceled, redistest.Not(leasehold.ErrUnavailable))
		}
		redistest.Require(f, wire.Sent()-sent, 0, "%d commands were sent")
		release(f, l)
	})
}
