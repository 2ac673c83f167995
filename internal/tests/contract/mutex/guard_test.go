package mutex

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

func (f *fixture) grd(key, part string) string {
	return harness.Part(harness.Guards, f.Family, key, part)
}

func newGuard(tb testing.TB, rdb redis.UniversalClient, name string) *mutex.Guard {
	tb.Helper()
	return redistest.Must(mutex.NewGuard(rdb, mutex.GuardConfig{Name: name}))(tb)
}

func (f *fixture) wantValue(g *mutex.Guard, key, want string) {
	f.Helper()
	got, ok, err := g.Get(f.Context(), key)
	redistest.CheckNow(f, err == nil && ok && got == want, "the value is %q, %v, %v; want %q", got, ok, err, want)
}

func set(f *fixture, g *mutex.Guard, key string, token uint64, value any) {
	f.Helper()
	redistest.Require(f, g.Set(f.Context(), key, token, value, time.Minute), nil, "set with token %d: %v", token)
}

func TestGuardRefusesOlderTokens(t *testing.T) {
	each(t, func(f *fixture) {
		g, same := newGuard(f, f.RDB, f.Family), newGuard(f, f.RDB, f.Family)
		got, ok, err := g.Get(f.Context(), "k") // before the first write
		redistest.CheckNow(f, err == nil && !ok && got == "", "the value is %q, %v, %v; want none", got, ok, err)
		set(f, g, "k", 7, "a")
		set(f, same, "k", 7, "b") // the same token may write again
		f.wantValue(g, "k", "b")
		redistest.WantErr(f, same.Set(f.Context(), "k", 6, "c", time.Minute), leasehold.ErrFenced,
			redistest.Not(leasehold.ErrUnavailable, leasehold.ErrLost), redistest.Says("leasehold: mutex: guard set "+f.Family+"/k: "))
		f.wantValue(g, "k", "b")
		set(f, g, "k", 8, "d")
		redistest.WantErr(f, g.Set(f.Context(), "k", 7, "e", time.Minute), leasehold.ErrFenced)
		f.wantValue(g, "k", "d")
		set(f, g, "exact", 1, "x") // keys have tokens of their own
		redistest.Require(f, f.RDB.Get(f.Context(), f.grd("k", "seen")).Val(), "8", "seen is %q")
		redistest.Require(f, f.RDB.Get(f.Context(), f.grd("k", "value")).Val(), "d", "value is %q")
		// Tokens are compared digit by digit: as numbers of Redis's scripts, neighbours
		// near 2^53 would be equal, and as text 9 would be newer than 10.
		const most = 1<<53 - 1
		steps := []uint64{1, 2, 9, 10, 99, 100, 999_999, 1_000_000, 1_700_000_000_000_000, 1_700_000_000_000_001, most - 1, most}
		for i, token := range steps {
			set(f, g, "exact", token, "v")
			for _, older := range steps[:i] {
				redistest.WantErr(f, g.Set(f.Context(), "exact", older, "stale", time.Minute), leasehold.ErrFenced)
			}
		}
		f.wantValue(g, "exact", "v")
	})
}

func TestGuardRefusesBadCallsAndSendsNothing(t *testing.T) {
	some(t, func(f *fixture) {
		w := &harness.Wire{}
		rdb := f.Connect(w)
		rdb.AddHook(w)
		g := newGuard(f, rdb, f.Family)
		ctx := f.Context()
		wantInvalid := func(err error, text ...string) {
			f.Helper()
			redistest.WantErr(f, err, leasehold.ErrInvalid, redistest.Not(leasehold.ErrUnavailable, leasehold.ErrFenced), redistest.Says(text...))
		}
		wantInvalid(g.Set(ctx, "k", 0, "v", 0), "token is 0", "1 to 9007199254740991")
		wantInvalid(g.Set(ctx, "k", 1<<53, "v", 0), "token is 9007199254740992", "1 to 9007199254740991")
		wantInvalid(g.Set(ctx, "k", math.MaxUint64, "v", 0), "token is 18446744073709551615")
		wantInvalid(g.Set(ctx, "k", 1, "v", -time.Second), "ttl is -1s", "1ms")
		wantInvalid(g.Set(ctx, "k", 1, "v", time.Microsecond), "ttl is 1µs", "1ms")
		wantInvalid(g.Set(ctx, "", 1, "v", 0), "key is empty", "512")
		wantInvalid(g.Set(ctx, strings.Repeat("x", 513), 1, "v", 0), "513", "512")
		_, _, err := g.Get(ctx, "")
		wantInvalid(err, "guard get", "key is empty")
		for _, value := range []any{nil, struct{ A int }{1}, []string{"a"}, map[string]int{}, make(chan int), func() {}, &struct{}{}} {
			wantInvalid(g.Set(ctx, "k", 1, value, 0), "value is a ", "encoding.BinaryMarshaler", f.Family+"/k")
		}
		wantInvalid(g.Set(ctx, "k", 1, (*time.Time)(nil), 0), "value is a nil *time.Time")
		cause := errors.New("no bytes for it")
		err = g.Set(ctx, "k", 1, marshaler{err: cause}, 0)
		wantInvalid(err, "value does not marshal")
		redistest.WantErr(f, err, cause)
		// Nothing is sent, so this caller's ctx is no outage of Redis.
		done := harness.Ended(ctx)
		redistest.WantErr(f, g.Set(done, "k", 1, "v", 0), context.Canceled, redistest.Not(leasehold.ErrUnavailable))
		_, _, err = g.Get(done, "k")
		redistest.WantErr(f, err, context.Canceled, redistest.Not(leasehold.ErrUnavailable))
		redistest.Require(f, w.Sent(), 0, "%d commands were sent")
		// A value is not written beside a key of another type.
		f.RDB.LPush(ctx, f.grd("k", "seen"), "theirs")
		err = g.Set(ctx, "k", 2, "v", time.Minute)
		redistest.WantErr(f, err, leasehold.ErrUnavailable, redistest.Not(leasehold.ErrFenced), redistest.Says("WRONGTYPE"))
		redistest.Require(f, f.RDB.Exists(ctx, f.grd("k", "value")).Val(), 0, "the value was written")
		f.RDB.Del(ctx, f.grd("k", "seen"))
	})
}

type marshaler struct {
	text string
	err  error
}

func (m marshaler) MarshalBinary() ([]byte, error) { return []byte(m.text), m.err }

func TestGuardWritesWhatGoRedisWrites(t *testing.T) {
	each(t, func(f *fixture) {
		g := newGuard(f, f.RDB, f.Family)
		at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
		for _, value := range []any{
			"text", "",
			[]byte{0, 255, '\r', '\n'},
			[]byte(nil), true, false, 42, int8(-1), int16(-2), int32(-3), int64(math.MinInt64),
			uint(1), uint8(2), uint16(3), uint32(4), uint64(math.MaxUint64), float32(1.5), 2.25, math.Inf(1), at, &at, time.Second,
			marshaler{text: "marshalled"},
			strings.Repeat("x", 1<<20),
		} {
			set(f, g, "k", 1, value)
			f.RDB.Set(f.Context(), f.grd("k", "reference"), value, time.Minute)
			f.wantValue(g, "k", f.RDB.Get(f.Context(), f.grd("k", "reference")).Val())
		}
	})
}

// The guard must not forget a token while its stale holder may still come.
func TestGuardSeenOutlivesTheValue(t *testing.T) {
	each(t, func(f *fixture) {
		g := newGuard(f, f.RDB, f.Family)
		left := func(part string) time.Duration { return f.RDB.PTTL(f.Context(), f.grd("k", part)).Val() }
		redistest.WantErr(f, g.Set(f.Context(), "k", 5, "v", 20*time.Millisecond))
		redistest.AtLeast(f, left("seen"), 24*time.Hour-redistest.Soon, "seen is kept for %v")
		redistest.Eventually(f, "the value to expire", func() bool {
			_, ok, err := g.Get(f.Context(), "k")
			return err == nil && !ok
		})
		redistest.WantErr(f, g.Set(f.Context(), "k", 4, "stale", time.Minute), leasehold.ErrFenced)
		const century = 100 * 365 * 24 * time.Hour
		for _, ttl := range []time.Duration{100 * time.Hour, century, math.MaxInt64} {
			redistest.WantErr(f, g.Set(f.Context(), "k", 5, "v", ttl))
			value, seen := left("value"), left("seen")
			redistest.CheckNow(f, value >= min(ttl, century)-redistest.Soon && seen >= value+23*time.Hour, "the value is kept for %v, seen for %v", value, seen)
		}
		redistest.WantErr(f, g.Set(f.Context(), "k", 6, "v", 0))
		value, seen := left("value"), left("seen")
		redistest.CheckNow(f, value == -1 && seen == -1, "a value that never expires is kept for %v, seen for %v", value, seen)
		for _, part := range []string{"value", "seen"} {
			f.RDB.Del(f.Context(), f.grd("k", part))
		}
	})
}

// NewGuard names each bad field. Keys have the prefix, and with HashKeys none appears in Redis or in an error.
func TestGuardConfig(t *testing.T) {
	some(t, func(f *fixture) {
		for _, bad := range []struct {
			cfg  mutex.GuardConfig
			want []string
		}{
			{mutex.GuardConfig{}, []string{"Name is empty", "1 to 512"}},
			{mutex.GuardConfig{Name: strings.Repeat("x", 513)}, []string{"Name has 513 bytes"}},
			{mutex.GuardConfig{Prefix: "{", Name: ""}, []string{"Name is empty", `Prefix is "{"`}},
		} {
			err := redistest.ErrorOf(mutex.NewGuard(f.RDB, bad.cfg))
			redistest.WantErr(f, err, leasehold.ErrInvalid, redistest.Says(append(bad.want, "leasehold: mutex: guard: bad configuration")...))
		}
		redistest.WantText(f, redistest.ErrorOf(mutex.NewGuard(nil, mutex.GuardConfig{Name: f.Family})), "rdb")
		g := redistest.Must(mutex.NewGuard(f.RDB, mutex.GuardConfig{Name: f.Family, Prefix: f.Family, HashKeys: true}))(f)
		const secret = "ada@example.org"
		set(f, g, secret, 3, "v")
		f.wantValue(g, secret, "v")
		all := f.Keys()
		redistest.CheckNow(f, len(all) == 2 && !strings.Contains(fmt.Sprint(all), secret), "the keys are %q", all)
		err := g.Set(f.Context(), secret, 2, "v", time.Minute)
		redistest.WantErr(f, err, leasehold.ErrFenced)
		redistest.CheckNow(f, !strings.Contains(err.Error(), secret), "%v contains the key", err)
	})
}

// Where the answer is lost, writing again with the same token is safe.
func TestGuardWhoseReplyIsLost(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		g := newGuard(f, p.Client(func(o *redis.Options) { o.MaxRetries = -1 }), f.Family)
		set(f, g, "warm", 1, "v")
		fault := p.EatReply(harness.Does("guard set"), 1)
		err := g.Set(f.Context(), "k", 2, "v", time.Minute)
		fault.Wait()
		if err != nil {
			redistest.WantErr(f, err, leasehold.ErrUnavailable, redistest.Not(leasehold.ErrFenced))
		}
		set(f, g, "k", 2, "v")
		hold := p.HoldReply(harness.Does("guard set"), 1)
		defer hold.Release()
		ctx, cancel := context.WithCancel(f.Context())
		ended := harness.Begin(f, func() error { return g.Set(ctx, "k", 3, "w", time.Minute) })
		hold.Wait()
		cancel()
		redistest.WantErr(f, ended.Failed(), context.Canceled, leasehold.ErrUnavailable)
		f.wantValue(newGuard(f, f.RDB, f.Family), "k", "w")
	})
}

// Once its ctx has ended, a caller may use its bytes for something else, though the call is under way yet. A ctx that does
// not say why it ended makes no answer.
func TestGuardWritesTheBytesOfItsCall(t *testing.T) {
	bubble(t, func(f *fixture) {
		w := &harness.Wire{}
		rdb := f.Connect(w)
		rdb.AddHook(w)
		g := newGuard(f, rdb, f.Family)
		set(f, g, "k", 1, "first")
		w.Stall()
		bytes := []byte("second")
		ctx := harness.EndedBadly{Context: f.Context(), Ended: make(chan struct{}), How: func() error { return nil }}
		left := harness.Begin(f, func() error { return g.Set(ctx, "k", 2, bytes, time.Minute) })
		synctest.Wait()
		close(ctx.Ended)
		redistest.WantErr(f, left.Within(time.Second, "the call").Err, leasehold.ErrUnavailable, context.Canceled, redistest.Not(leasehold.ErrFenced))
		copy(bytes, "------")
		w.Unstall()
		synctest.Wait()
		f.wantValue(g, "k", "second")
	})
}

// An Observer is told of a write that the guard refused, and of no other, also if the caller
// has left before the answer. The key is as errors show it.
func TestGuardTellsItsObserver(t *testing.T) {
	withProxy(t, func(f *fixture, p *redistest.Proxy) {
		told := make(chan leasehold.Event, 16)
		rdb := p.Client(func(o *redis.Options) { o.MaxRetries = -1 })
		for _, hash := range []bool{false, true} {
			g := redistest.Must(mutex.NewGuard(rdb, mutex.GuardConfig{Name: f.Family, HashKeys: hash, Observer: harness.ObserverFunc(func(e leasehold.Event) { told <- e })}))(f)
			set(f, g, "k:1", 7, "new")
			set(f, g, "k:1", 7, "again")
			redistest.Require(f, len(told), 0, "%d events were told of writes that counted")
			err := g.Set(f.Context(), "k:1", 6, "old", time.Minute)
			redistest.WantErr(f, err, leasehold.ErrFenced)
			redistest.Require(f, len(told), 1, "%d events for a refused write; want 1 when Set has returned")
			e := <-told
			_, shown, _ := strings.Cut(err.Error(), f.Family+"/")
			want := leasehold.Event{Kind: leasehold.EventGuardRefused, Type: "mutex", Family: f.Family, Key: e.Key}
			redistest.Check(f, e == want && e.Key != "" && strings.HasPrefix(shown, e.Key+":") && hash != strings.HasPrefix(e.Key, "k"),
				"told %+v; want the key as in %q", e, err)

			hold := p.HoldReply(harness.Does("guard set"), 1)
			ctx, cancel := context.WithCancel(f.Context())
			left := harness.Begin(f, func() error { return g.Set(ctx, "k:1", 5, "older", time.Minute) })
			hold.Wait()
			cancel()
			redistest.WantErr(f, left.Failed(), context.Canceled)
			hold.Release()
			redistest.Expect(f, redistest.Get(f, "the event", told), want, "told %+v")
		}
	})
}
