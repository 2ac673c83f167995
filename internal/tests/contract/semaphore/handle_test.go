package semaphore

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestNewNamesEveryBadField(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	type (
		config = semaphore.Config
		says   []string // of each bad field: name, value, bound
	)
	long := strings.Repeat("x", 513)
	for _, c := range []struct {
		cfg  config
		want says
	}{
		{config{}, says{"Name", "empty", "512", "Limit", "0", "1 to 100000"}},
		{
			config{Name: long, Limit: 100_001, TTL: 99 * time.Millisecond, MaxHold: -time.Second, MaxWaiters: -1, Prefix: long + "{"},
			says{"Name", "513", "1 to 512", "Limit", "100001", "1 to 100000", "TTL", "99ms", "100ms", "MaxHold", "-1s", "MaxWaiters", "-1", "Prefix", "514", "at most 512", "{"},
		},
		{config{Name: "n", Limit: -5, TTL: -time.Second}, says{"Limit", "-5", "TTL", "-1s"}},
		{config{Name: "n", Limit: 1, Prefix: "a}b"}, says{"Prefix", "}"}},
		{config{Name: "n", Limit: 1, Prefix: "a\nb"}, says{"Prefix", `\n`}},
		{config{Name: "n", Limit: 1, Label: long[:65]}, says{"Label has 65 bytes; want at most 64"}},
		{config{Name: "n", Limit: 1, Total: 2, KeepFor: time.Second}, says{"KeepFor is 1s, and Total is 2; want one of them to be 0"}},
		{config{Name: "n", Limit: 1, Total: 2, LocalFor: time.Second}, says{"LocalFor is 1s, and Total is 2; want one of them to be 0"}},
		{config{Name: "n", Limit: 1, KeepFor: -1}, says{"KeepFor is -1ns; want 1ms to 10s"}},
		{config{Name: "n", Limit: 1, KeepFor: time.Microsecond}, says{"KeepFor is 1µs; want 1ms to 10s"}},
		{config{Name: "n", Limit: 1, KeepFor: 10*time.Second + 1}, says{"KeepFor is 10.000000001s; want 1ms to 10s"}},
		{config{Name: "n", Limit: 1, TTL: time.Second, KeepFor: 501 * time.Millisecond}, says{"KeepFor is 501ms; want 1ms to 500ms (half of TTL"}},
		{config{Name: "n", Limit: 1, LocalFor: -1}, says{"LocalFor is -1ns; want 1ms to 1s"}},
		{config{Name: "n", Limit: 1, LocalFor: time.Millisecond - 1}, says{"LocalFor is 999.999µs; want 1ms to 1s"}},
		{config{Name: "n", Limit: 1, LocalFor: time.Second + 1}, says{"LocalFor is 1.000000001s; want 1ms to 1s"}},
		{config{Name: "n", Limit: 1, TTL: 100 * time.Millisecond, LocalFor: 51 * time.Millisecond}, says{"LocalFor is 51ms; want 1ms to 50ms"}},
		{config{Name: "n", Limit: 1, MaxWaitersTotal: 1}, says{"MaxWaitersTotal is 1, and Total is 0; want a Total, or 0"}},
		{config{Name: "n", Limit: 1, Total: 2, MaxWaiters: 3, MaxWaitersTotal: 2}, says{"MaxWaitersTotal is 2; want at least MaxWaiters, 3"}},
		// These are bounds.
		{config{Name: "n", Limit: 1, Total: 2, MaxWaiters: 3, MaxWaitersTotal: 3}, nil},
		{config{Name: "n", Limit: 1, LocalFor: time.Millisecond}, nil},
		{config{Name: "n", Limit: 1, LocalFor: time.Second}, nil},
		{config{Name: "n", Limit: 1, TTL: 100 * time.Millisecond, LocalFor: 50 * time.Millisecond}, nil},
		{config{Name: "n", Limit: 1}, nil},
		{config{Name: "n", Limit: 1, TTL: time.Second, KeepFor: 500 * time.Millisecond}, nil},
		{config{Name: strings.Repeat("{", 512), Limit: 100_000, TTL: 100 * time.Millisecond, MaxHold: 1, MaxWaiters: 1}, nil},
		{config{Name: "\x00:}", Limit: 1, Prefix: strings.Repeat("a:", 256), HashKeys: true}, nil},
	} {
		s, err := semaphore.New(rdb, c.cfg)
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
	redistest.WantText(t, redistest.ErrorOf(semaphore.New(nil, config{})), "rdb", "Name", "Limit")
}

// What cannot be asked for is refused by name, value and bound, before anything is sent. Nor does a ctx that has ended
// send anything, and an Extend that did not extend does not say that it did.
func TestBadCallsSendNothing(t *testing.T) {
	bubble(t, func(f *fixture) {
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
		ended := harness.Ended(ctx)
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

// prefixed gives a handle a prefix that no other test has, so that all that it puts into Redis can be listed.
func prefixed(f *fixture) func(*semaphore.Config) {
	return func(c *semaphore.Config) { c.Prefix = f.Family }
}

func (f *fixture) wantTTLs() {
	f.Helper()
	for _, key := range f.Keys() {
		left := f.RDB.PTTL(context.Background(), key).Val()
		redistest.CheckNow(f, left != -1, "%s never expires", key)
	}
}

func TestKeyNamesAreAsDocumentedAndExpire(t *testing.T) {
	each(t, func(f *fixture) {
		s, _ := f.open(prefixed(f), limit(2))
		key := "a:b{c}"
		part := func(part string) string { return f.Family + ":sem:{" + f.Family + ":a%3Ab%7Bc%7D}:" + part }
		l := f.take(s, key, 2)
		redistest.Require(f, strings.Join(f.Keys(), " "), part("holders"), "a held permit makes the keys %s")
		f.wantTTLs()
		ctx, cancel := context.WithCancel(f.Context())
		waiter := harness.Begin(f, func() error { return redistest.ErrorOf(s.Acquire(ctx, key)) })
		with := []string{part("alive"), part("holders"), part("queue")}
		redistest.Eventually(f, "the keys of a waiter", func() bool { return slices.Equal(f.Keys(), with) })
		redistest.Eventually(f, "the subscription", func() bool { return len(f.Subscribed(f.Family)) == 1 })
		f.wantTTLs()
		for _, name := range with {
			redistest.Require(f, f.RDB.Type(f.Context(), name).Val(), "zset", "%s is a %s", name)
		}
		// The channel is the handle's own, as the members of the sets begin. On a Cluster it is in the slot of the key.
		channel := f.Subscribed(f.Family)[0]
		handle, found := strings.CutPrefix(channel, f.Family+":inbox:")
		if !found {
			handle, found = strings.CutPrefix(channel, part("inbox:"))
		}
		redistest.CheckNow(f, found, "the channel is %q", channel)
		for _, m := range f.RDB.ZRange(f.Context(), part("queue"), 0, -1).Val() {
			redistest.CheckNow(f, strings.HasPrefix(m, handle), "channel %q, member %q", handle, m)
		}
		cancel()
		waiter.Failed()
		release(f, l)
		f.wantTTLs()
		redistest.Eventually(f, "the keys to be gone", func() bool { return len(f.Keys()) == 0 })
	})
}

// An error names its operation, the family and the key, and no owner. With HashKeys the key shows nowhere:
// neither in an error nor in Redis.
func TestErrorsNameOperationFamilyAndKeyAndNoOwner(t *testing.T) {
	each(t, func(f *fixture) {
		const key = "alice@example.com/b c"
		for _, hash := range []bool{false, true} {
			prefix := fmt.Sprintf("%s:%t", f.Family, hash)
			config := func(c *semaphore.Config) { c.HashKeys, c.MaxWaiters, c.Prefix = hash, 1, prefix }
			keys := func() []string {
				return slices.DeleteFunc(f.Keys(), func(key string) bool { return !strings.HasPrefix(key, prefix) })
			}
			s, wire := f.open(config)
			same, _ := f.open(config)
			l := f.take(s, key, 1)
			redistest.Require(f, l.Key(), key, "Key is %q")
			var shown []string                  // in Redis and in errors
			label, owner := "/"+key, l.ID()[:8] // as the IDs of a handle begin
			if hash {
				label = "/"
			}
			failed := func(op string, err error, want ...error) {
				f.Helper()
				redistest.WantErr(f, err, append(want, redistest.Says("leasehold: semaphore: "+op+" "+f.Family+label))...)
				redistest.Check(f, !strings.Contains(err.Error(), owner), "%q shows the owner", err)
				shown = append(shown, err.Error())
			}
			failed("try acquire", redistest.ErrorOf(same.TryAcquire(f.Context(), key)), leasehold.ErrBusy)
			ctx, cancel := context.WithCancel(f.Context())
			waiter := harness.Begin(f, func() error { return redistest.ErrorOf(s.Acquire(ctx, key)) })
			redistest.Eventually(f, "the keys of a waiter", func() bool { return len(keys()) == 3 })
			redistest.Eventually(f, "the subscription", func() bool { return len(f.Subscribed(prefix)) == 1 })
			failed("acquire", redistest.ErrorOf(same.Acquire(f.Context(), key)), leasehold.ErrQueueFull)
			failed("do", same.Do(f.Context(), key, func(context.Context) error { return nil }))
			shown = slices.Concat(shown, keys(), f.Subscribed(prefix))
			for _, name := range keys() {
				shown = append(shown, f.RDB.ZRange(f.Context(), name, 0, -1).Val()...)
			}
			cancel()
			failed("acquire", waiter.Failed())
			failed("try acquire", redistest.ErrorOf(s.TryAcquireN(f.Context(), key, 2)))
			wire.Cut()
			failed("try acquire", redistest.ErrorOf(s.TryAcquire(f.Context(), key)))
			failed("extend", l.Extend(f.Context(), time.Minute))
			wire.Heal()
			release(f, l)
			failed("release", l.Release())
			failed("extend", l.Extend(f.Context(), time.Minute))
			failed("hold", context.Cause(l.Context()))
			for _, text := range shown {
				redistest.Check(f, !hash || !strings.Contains(text, "alice") && !strings.Contains(text, "example"), "%q shows the key", text)
			}
		}
	})
}

func label(text string) func(*semaphore.Config) { return func(c *semaphore.Config) { c.Label = text } }

func (f *fixture) inspect(s *semaphore.Semaphore, key string) semaphore.State {
	f.Helper()
	return redistest.Must(s.Inspect(f.Context(), key))(f)
}

// Inspect lists the holders, oldest first, and the waiters in their order, each with the ID and the label that its
// process knows it by. The label is by default the end of host and process number.
func TestInspectListsHoldersAndWaiters(t *testing.T) {
	each(t, func(f *fixture) {
		a, _ := f.open(limit(3), label("a.b~c {d}"))
		b, _ := f.open(limit(3), label("-"))
		if state := f.inspect(a, "k"); state.Limit != 3 || state.InUse+state.Waiting+len(state.Holders)+len(state.Waiters) != 0 {
			f.Fatalf("of a key that nobody has: %+v", state)
		}
		first := f.take(a, "k", 2)
		time.Sleep(2 * time.Millisecond) // another millisecond for the second
		second := f.take(b, "k", 1)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		one := f.wait(ctx, a, "k", 3)
		two := f.wait(ctx, b, "k", 1)
		state := f.inspect(b, "k")
		redistest.CheckNow(f, state.Limit == 3 && state.InUse == 3 && state.Waiting == 2, "%+v", state)
		for i, got := range state.Holders {
			redistest.Check(f, got.ExpiresIn > 0 && got.ExpiresIn <= 30*time.Second && !got.Since.IsZero(), "holder %d: %+v", i, got)
			state.Holders[i].ExpiresIn, state.Holders[i].Since = 0, time.Time{}
		}
		for i, got := range state.Waiters {
			redistest.Check(f, got.WaitingFor >= 0 && got.WaitingFor <= time.Minute && got.ID != "", "waiter %d: %+v", i, got)
			state.Waiters[i].WaitingFor, state.Waiters[i].ID = 0, ""
		}
		holders := []leasehold.Holder{{ID: first.ID(), Permits: 2, Label: "a.b~c {d}"}, {ID: second.ID(), Permits: 1}}
		waiters := []leasehold.Waiter{{Permits: 3, Label: "a.b~c {d}", Position: 1}, {Permits: 1, Position: 2}}
		redistest.Check(f, slices.Equal(state.Holders, holders) && slices.Equal(state.Waiters, waiters), "%+v; want %v and %v", state, holders, waiters)
		cancel()
		redistest.WantErr(f, one.Failed(), context.Canceled)
		redistest.WantErr(f, two.Failed(), context.Canceled)
		release(f, first)
		release(f, second)
		host, err := os.Hostname()
		if err != nil {
			f.Skip(err)
		}
		c, _ := f.open()
		l := f.take(c, "labelled", 1)
		whole := fmt.Sprintf("%s:%d", host, os.Getpid())
		got := f.inspect(c, "labelled").Holders[0].Label
		redistest.CheckNow(f, len(got) == min(20, len(whole)) && strings.HasSuffix(whole, got), "the label is %q of %q", got, whole)
		release(f, l)
	})
}

// Since when a permit is held stays known, to 1 % or 1 s, while it is renewed and
// extended, and where its first term was shorter than its TTL.
func TestSinceSurvivesRenewals(t *testing.T) {
	bubble(t, func(f *fixture) {
		for _, all := range []int{0, 2} {
			// A long TTL, so that six hours have two hundred renewals, and not two thousand.
			settings := []func(*semaphore.Config){limit(2), ttl(5 * time.Minute), total(all)}
			a, _ := f.open(settings...)
			b, _ := f.open(settings...)
			one := f.take(a, "k", 1)
			two := f.take(a, "k", 1)
			w := f.start(b, "k", 1)
			time.Sleep(time.Second) // in a bubble: it is queued by then
			release(f, two)
			three := w.Got()
			granted := map[string]time.Time{one.ID(): time.Now().Add(-time.Second), three.ID(): time.Now()}
			for _, age := range []time.Duration{0, time.Second, 15 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour} {
				time.Sleep(age)
				state := f.inspect(a, "k")
				redistest.CheckNow(f, len(state.Holders) == 2 && (age > time.Minute || state.Holders[0].ID == one.ID()),
					"with a total of %d after %v: %+v", all, age, state)
				for _, h := range state.Holders {
					held := time.Since(granted[h.ID])
					redistest.AtMost(f, h.Since.Sub(granted[h.ID]).Abs(), max(held/100, time.Second), "a permit held for %v is listed with an error of %v", held)
				}
				if age == time.Minute {
					redistest.WantErr(f, one.Extend(f.Context(), 10*time.Minute))
				}
			}
			release(f, one)
			release(f, three)
		}
	})
}
