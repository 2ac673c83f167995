package mutex_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/mutex"
)

func (f *fixture) grd(key, part string) string {
	return "leasehold:grd:{" + f.name + ":" + key + "}:" + part
}

func (f *fixture) wantValue(g *mutex.Guard, key, want string) {
	f.Helper()
	if got, err := g.Get(f.Context(), key).Result(); err != nil || got != want {
		f.Fatalf("the value is %q, %v; want %q", got, err, want)
	}
}

func set(f *fixture, g *mutex.Guard, key string, token uint64, value any) {
	f.Helper()
	if err := g.Set(f.Context(), key, token, value, time.Minute); err != nil {
		f.Fatalf("set with token %d: %v", token, err)
	}
}

func TestGuardRefusesOlderTokens(t *testing.T) {
	each(t, func(f *fixture) {
		g, same := mutex.NewGuard(f.rdb, f.name), mutex.NewGuard(f.rdb, f.name)
		if err := g.Get(f.Context(), "k").Err(); err != redis.Nil {
			f.Fatalf("before the first write: %v", err)
		}
		set(f, g, "k", 7, "a")
		set(f, same, "k", 7, "b") // the same token may write again
		f.wantValue(g, "k", "b")
		err := same.Set(f.Context(), "k", 6, "c", time.Minute)
		redistest.WantErr(f, err, leasehold.ErrFenced)
		redistest.WantNot(f, err, leasehold.ErrUnavailable, leasehold.ErrLost)
		redistest.WantText(f, err, "leasehold: mutex: guard set "+f.name+"/k: ")
		f.wantValue(g, "k", "b")
		set(f, g, "k", 8, "d")
		redistest.WantErr(f, g.Set(f.Context(), "k", 7, "e", time.Minute), leasehold.ErrFenced)
		f.wantValue(g, "k", "d")
		set(f, g, "other", 1, "x") // keys have tokens of their own
		if seen := f.rdb.Get(f.Context(), f.grd("k", "seen")).Val(); seen != "8" {
			f.Fatalf("seen is %q", seen)
		}
		if v := f.rdb.Get(f.Context(), f.grd("k", "value")).Val(); v != "d" {
			f.Fatalf("value is %q", v)
		}
	})
}

// Tokens are compared digit by digit: as numbers of Redis's scripts, neighbours
// near 2^53 would be equal, and as text 9 would be newer than 10.
func TestGuardComparesTokensExactly(t *testing.T) {
	each(t, func(f *fixture) {
		g := mutex.NewGuard(f.rdb, f.name)
		const most = 1<<53 - 1
		steps := []uint64{1, 2, 9, 10, 99, 100, 999_999, 1_000_000, 1_700_000_000_000_000, 1_700_000_000_000_001, most - 1, most}
		for i, token := range steps {
			set(f, g, "k", token, "v")
			for _, older := range steps[:i] {
				redistest.WantErr(f, g.Set(f.Context(), "k", older, "stale", time.Minute), leasehold.ErrFenced)
			}
		}
		f.wantValue(g, "k", "v")
	})
}

func TestGuardRefusesBadCallsAndSendsNothing(t *testing.T) {
	each(t, func(f *fixture) {
		w := &redistest.Wire{}
		rdb := f.connect(w)
		rdb.AddHook(w)
		g := mutex.NewGuard(rdb, f.name)
		ctx := f.Context()
		redistest.WantText(f, g.Set(ctx, "k", 0, "v", 0), "token is 0", "1 to 9007199254740991")
		redistest.WantText(f, g.Set(ctx, "k", 1<<53, "v", 0), "token is 9007199254740992", "1 to 9007199254740991")
		redistest.WantText(f, g.Set(ctx, "k", math.MaxUint64, "v", 0), "token is 18446744073709551615")
		redistest.WantText(f, g.Set(ctx, "k", 1, "v", -time.Second), "ttl is -1s", "1ms")
		redistest.WantText(f, g.Set(ctx, "k", 1, "v", time.Microsecond), "ttl is 1µs", "1ms")
		redistest.WantText(f, g.Set(ctx, "", 1, "v", 0), "key is empty", "512")
		redistest.WantText(f, g.Set(ctx, strings.Repeat("x", 513), 1, "v", 0), "513", "512")
		redistest.WantText(f, g.Get(ctx, "").Err(), "key is empty")
		secret := errors.New("does not marshal")
		for _, value := range []any{nil, struct{ A int }{1}, []string{"a"}, map[string]int{}, make(chan int), func() {}, &struct{}{}} {
			err := g.Set(ctx, "k", 1, value, 0)
			redistest.WantText(f, err, "value is a ", "encoding.BinaryMarshaler", f.name+"/k")
		}
		redistest.WantErr(f, g.Set(ctx, "k", 1, marshaler{err: secret}, 0), secret)
		done, cancel := context.WithCancel(ctx)
		cancel()
		redistest.WantErr(f, g.Set(done, "k", 1, "v", 0), context.Canceled, leasehold.ErrUnavailable)
		for prefix, name := range map[string]string{"{": "n", "p": "", "q": strings.Repeat("x", 513)} {
			bad := mutex.NewGuardPrefix(rdb, prefix, name)
			if err := bad.Set(ctx, "k", 1, "v", 0); err == nil || errors.Is(err, leasehold.ErrUnavailable) {
				f.Fatalf("prefix %q, name of %d bytes: %v", prefix, len(name), err)
			}
			if bad.Get(ctx, "k").Err() == nil {
				f.Fatalf("prefix %q, name of %d bytes: Get is fine", prefix, len(name))
			}
		}
		if err := mutex.NewGuard(nil, f.name).Set(ctx, "k", 1, "v", 0); err == nil {
			f.Fatal("a guard without a client writes")
		}
		if err := mutex.NewGuard(nil, f.name).Get(ctx, "k").Err(); err == nil {
			f.Fatal("a guard without a client reads")
		}
		if n := w.Sent(); n != 0 {
			f.Fatalf("%d commands were sent", n)
		}
	})
}

type marshaler struct {
	text string
	err  error
}

func (m marshaler) MarshalBinary() ([]byte, error) { return []byte(m.text), m.err }

func TestGuardWritesWhatGoRedisWrites(t *testing.T) {
	each(t, func(f *fixture) {
		g := mutex.NewGuard(f.rdb, f.name)
		at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
		for _, value := range []any{
			"text", "",
			[]byte{0, 255, '\r', '\n'},
			[]byte(nil), true, false, 42, int8(-1), int16(-2), int32(-3), int64(math.MinInt64),
			uint(1), uint8(2), uint16(3), uint32(4), uint64(math.MaxUint64), float32(1.5), 2.25, math.Inf(1), at, time.Second,
			marshaler{text: "marshalled"},
			strings.Repeat("x", 1<<20),
		} {
			set(f, g, "k", 1, value)
			f.rdb.Set(f.Context(), f.grd("k", "reference"), value, time.Minute)
			f.wantValue(g, "k", f.rdb.Get(f.Context(), f.grd("k", "reference")).Val())
		}
	})
}

// The guard must not forget a token while its stale holder may still come.
func TestGuardSeenOutlivesTheValue(t *testing.T) {
	each(t, func(f *fixture) {
		g := mutex.NewGuard(f.rdb, f.name)
		left := func(part string) time.Duration { return f.rdb.PTTL(f.Context(), f.grd("k", part)).Val() }
		if err := g.Set(f.Context(), "k", 5, "v", 20*time.Millisecond); err != nil {
			f.Fatal(err)
		}
		if seen := left("seen"); seen < 24*time.Hour-redistest.Soon {
			f.Fatalf("seen is kept for %v", seen)
		}
		redistest.Eventually(f, "the value to expire", func() bool { return g.Get(f.Context(), "k").Err() == redis.Nil })
		redistest.WantErr(f, g.Set(f.Context(), "k", 4, "stale", time.Minute), leasehold.ErrFenced)
		if err := g.Set(f.Context(), "k", 5, "v", 100*time.Hour); err != nil {
			f.Fatal(err)
		}
		if value, seen := left("value"), left("seen"); value < 99*time.Hour || seen < value+23*time.Hour {
			f.Fatalf("the value is kept for %v, seen for %v", value, seen)
		}
		// A value that never expires has a token that never does.
		if err := g.Set(f.Context(), "k", 6, "v", 0); err != nil {
			f.Fatal(err)
		}
		if value, seen := left("value"), left("seen"); value != -1 || seen != -1 {
			f.Fatalf("the value is kept for %v, seen for %v", value, seen)
		}
		const century = 100 * 365 * 24 * time.Hour
		if err := g.Set(f.Context(), "k", 7, "v", century); err != nil {
			f.Fatal(err)
		}
		if value, seen := left("value"), left("seen"); value < century-redistest.Soon || seen < value+23*time.Hour {
			f.Fatalf("the value is kept for %v, seen for %v", value, seen)
		}
		for _, part := range []string{"value", "seen"} {
			f.rdb.Del(f.Context(), f.grd("k", part))
		}
	})
}

func TestGuardPrefixesAndNames(t *testing.T) {
	each(t, func(f *fixture) {
		g := mutex.NewGuardPrefix(f.rdb, f.name, "a:b")
		set(f, g, "{k}", 3, "v")
		for part, want := range map[string]string{"value": "v", "seen": "3"} {
			if got := f.rdb.Get(f.Context(), f.name+":grd:{a%3Ab:%7Bk%7D}:"+part).Val(); got != want {
				f.Fatalf("%s is %q", part, got)
			}
		}
		set(f, mutex.NewGuard(f.rdb, f.name), "{k}", 1, "another")
		f.wantValue(g, "{k}", "v")
	})
}

// Where the answer is lost, writing again with the same token is safe.
func TestGuardWhoseReplyIsLost(t *testing.T) {
	eachProxy(t, func(f *fixture, p *redistest.Proxy) {
		g := mutex.NewGuard(p.Client(func(o *redis.Options) { o.MaxRetries = -1 }), f.name)
		set(f, g, "warm", 1, "v")
		fault := p.EatReply(redistest.Runs(luascripts.GuardSet), 1)
		err := g.Set(f.Context(), "k", 2, "v", time.Minute)
		fault.Wait()
		if err != nil {
			redistest.WantErr(f, err, leasehold.ErrUnavailable)
			redistest.WantNot(f, err, leasehold.ErrFenced)
		}
		set(f, g, "k", 2, "v")
		hold := p.HoldReply(redistest.Runs(luascripts.GuardSet), 1)
		defer hold.Release()
		ctx, cancel := context.WithCancel(f.Context())
		ended := make(chan error, 1)
		go func() { ended <- g.Set(ctx, "k", 3, "w", time.Minute) }()
		hold.Wait()
		cancel()
		redistest.WantErr(f, redistest.Get(f, "the cancelled write", ended), context.Canceled, leasehold.ErrUnavailable)
		f.wantValue(mutex.NewGuard(f.rdb, f.name), "k", "w")
	})
}

// A value under a key of another type is no reason to overwrite it.
func TestGuardOnKeysOfAWrongType(t *testing.T) {
	each(t, func(f *fixture) {
		g := mutex.NewGuard(f.rdb, f.name)
		f.rdb.LPush(f.Context(), f.grd("k", "seen"), "theirs")
		err := g.Set(f.Context(), "k", 2, "v", time.Minute)
		redistest.WantErr(f, err, leasehold.ErrUnavailable)
		redistest.WantText(f, err, "WRONGTYPE")
		redistest.WantNot(f, err, leasehold.ErrFenced)
		if f.rdb.Exists(f.Context(), f.grd("k", "value")).Val() != 0 {
			f.Fatal("the value was written")
		}
		f.rdb.Del(f.Context(), f.grd("k", "seen"))
	})
}
