package singleflight

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

func nowhere(t *testing.T) redis.UniversalClient {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

const tenYears = 10 * 365 * 24 * time.Hour

func TestNewNamesEveryBadField(t *testing.T) {
	t.Parallel()
	type cfg = singleflight.Config[int]
	long := strings.Repeat("x", 513)
	all := []string{
		"Name", "TTL", "StaleFor", "StaleIfError", "ErrorTTL", "NotFoundTTL", "LoadTimeout", "SoftTimeout", "EarlyRefresh", "Jitter",
		"LeaseTTL", "MaxValueBytes", "MaxLoads", "NearFor", "NearBytes", "OnUnavailable", "Prefix",
	}
	for _, c := range []struct {
		cfg  cfg
		want []string // of each bad field: name, value, bound
	}{
		{cfg{}, []string{"Name", "is empty", "1 to 512", "TTL", "is 0s", "1ms to 87600h0m0s"}},
		{cfg{
			Name: long, TTL: time.Millisecond - 1, StaleFor: -time.Second, StaleIfError: -2 * time.Second,
			ErrorTTL: -3 * time.Second, NotFoundTTL: -4 * time.Second, LoadTimeout: -5 * time.Second, SoftTimeout: -6 * time.Second,
			EarlyRefresh: -1.5, Jitter: 0.51, LeaseTTL: 99 * time.Millisecond, MaxValueBytes: -1, MaxLoads: -7, OnUnavailable: 2,
			NearFor: 19 * time.Millisecond, NearBytes: 65535,
			Prefix: long + "{",
		}, []string{
			"Name", "513", "1 to 512", "TTL", "999.999µs", "StaleFor", "-1s", "0 to 87600h0m0s", "StaleIfError", "-2s",
			"ErrorTTL", "-3s", "NotFoundTTL", "-4s", "LoadTimeout", "-5s", "SoftTimeout", "-6s",
			"EarlyRefresh", "-1.5", "0 (off) to 100", "Jitter", "0.51", "up to 0.5", "LeaseTTL", "99ms", "100ms to 87600h0m0s", "0 for 10s",
			"MaxValueBytes", "is -1", "1 to 268435456", "0 for 1048576", "MaxLoads", "is -7", "0 (no bound) to 100000",
			"NearFor", "is 19ms", "0 (off), or 20ms to 1m0s", "NearBytes", "is 65535", "at least 65536, or 0 for 67108864",
			"OnUnavailable", "is 2", "Fail or LoadLocally", "Prefix", "514", "at most 512", "{",
		}},
		{cfg{
			Name: "n", TTL: tenYears + 1, StaleFor: tenYears + 1, StaleIfError: tenYears + 1, ErrorTTL: tenYears + 1, NotFoundTTL: tenYears + 1,
			LoadTimeout: tenYears + 1, SoftTimeout: tenYears + 1, EarlyRefresh: 100.5, LeaseTTL: tenYears + 1,
			MaxValueBytes: 256<<20 + 1, MaxLoads: 100_001, OnUnavailable: -1, NearFor: time.Minute + 1, NearBytes: -1,
		}, []string{
			"TTL", "87600h0m0.000000001s", "StaleFor", "StaleIfError", "ErrorTTL", "NotFoundTTL", "LoadTimeout", "SoftTimeout",
			"EarlyRefresh", "100.5", "LeaseTTL", "MaxValueBytes", "268435457", "MaxLoads", "100001", "OnUnavailable", "is -1", "NearFor", "1m0.000000001s", "NearBytes",
		}},
		{cfg{Name: "n", TTL: -time.Second, EarlyRefresh: math.NaN(), Jitter: math.NaN(), LeaseTTL: -time.Second}, []string{
			"TTL", "-1s", "EarlyRefresh", "NaN", "Jitter", "NaN", "LeaseTTL",
		}},
		{cfg{Name: "n", TTL: 1, EarlyRefresh: math.Inf(1), Jitter: math.Inf(1)}, []string{"TTL", "EarlyRefresh", "+Inf", "Jitter", "+Inf"}},
		{cfg{Name: "n", TTL: time.Second, Prefix: "a}b"}, []string{"Prefix", "}"}},
		{cfg{Name: "n", TTL: time.Second, Prefix: "a\nb"}, []string{"Prefix", `\n`}},
		// These are bounds.
		{cfg{Name: "n", TTL: time.Millisecond}, nil},
		{cfg{
			Name: strings.Repeat("{", 512), TTL: tenYears, StaleFor: tenYears, StaleIfError: tenYears, ErrorTTL: tenYears,
			NotFoundTTL: tenYears, EarlyRefresh: 100, Jitter: 0.5, LeaseTTL: tenYears, LoadTimeout: tenYears, SoftTimeout: tenYears,
			MaxValueBytes: 256 << 20, MaxLoads: 100_000, OnUnavailable: singleflight.LoadLocally, NearFor: time.Minute, NearBytes: math.MaxInt,
		}, nil},
		{cfg{
			Name: "\x00:}", TTL: 1e6, StaleFor: 1, StaleIfError: 1, ErrorTTL: 1, NotFoundTTL: 1, EarlyRefresh: 1e-9,
			Jitter: math.Inf(-1), LeaseTTL: 100 * time.Millisecond, LoadTimeout: 1, SoftTimeout: 1, MaxValueBytes: 1, MaxLoads: 1, NearFor: 20 * time.Millisecond, NearBytes: 64 << 10,
			Prefix: strings.Repeat("a:", 256), HashKeys: true, Schema: math.MaxUint32, Logger: slog.New(slog.DiscardHandler),
		}, nil},
	} {
		g, err := singleflight.New(nowhere(t), c.cfg)
		if c.want == nil {
			redistest.Expect(t, err, nil, "%+v: %v", c.cfg)
			continue
		}
		redistest.Check(t, g == nil, "%+v is accepted", c.cfg)
		redistest.WantErr(t, err, leasehold.ErrInvalid, redistest.Says(append(c.want, "leasehold: singleflight: ")...))
		_, text, _ := strings.Cut(err.Error(), "bad configuration: ")
		for _, field := range all {
			named := strings.Contains("\n"+text, "\n"+field+" ")
			redistest.Expect(t, slices.Contains(c.want, field), named, "%q names %s: %v, which is bad: %v", err, field, named)
		}
	}
}

// New refuses a type that msgpack does not bring back (internal/codec has which), and a client on which no promise holds.
func TestNewNamesABadTypeOrClient(t *testing.T) {
	t.Parallel()
	untyped := singleflight.Config[any]{Name: "n", TTL: time.Minute}
	_, err := singleflight.New(nowhere(t), untyped)
	redistest.WantErr(t, err, leasehold.ErrInvalid, redistest.Says("T can't be encoded", "T is interface {}", "want a type", "a Codec"))
	untyped.Codec = &jsonCodec{}
	redistest.NoError(t, redistest.ErrorOf(singleflight.New(nowhere(t), untyped)))
	good := singleflight.Config[int]{Name: "n", TTL: time.Second}
	redistest.WantText(t, redistest.ErrorOf(singleflight.New(nil, singleflight.Config[int]{})), "rdb", "Name", "TTL")
	for what, o := range map[string]redis.ClusterOptions{
		"read only": {ReadOnly: true}, "by latency": {RouteByLatency: true}, "at random": {RouteRandomly: true},
	} {
		o.Addrs = []string{"127.0.0.1:1"}
		rdb := redis.NewClusterClient(&o)
		defer rdb.Close()
		g, err := singleflight.New(rdb, good)
		redistest.Check(t, g == nil, "a client that reads from replicas (%s) is accepted", what)
		redistest.WantText(t, err, "rdb", "replicas", "primaries")
		redistest.WantText(t, redistest.ErrorOf(singleflight.New(rdb, singleflight.Config[int]{})), "rdb", "Name", "TTL")
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	redistest.Expect(t, redistest.ErrorOf(singleflight.New(cluster, good)), nil, "a Cluster client that reads from primaries: %v")
	// Client-side caching may return a value from before an invalidation, so NearFor could not promise anything on it.
	caching := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 3, ClientSideCacheConfig: &redis.ClientSideCacheConfig{}})
	defer caching.Close()
	redistest.Expect(t, redistest.ErrorOf(singleflight.New(caching, good)), nil, "client-side caching without NearFor: %v")
	good.NearFor = time.Second
	redistest.WantText(t, redistest.ErrorOf(singleflight.New(caching, good)), "NearFor", "is 1s", "client-side caching")
}

// What cannot be asked for is refused by name, value and bound, before anything is sent. Nor does a ctx that has ended
// send anything.
func TestBadCallsSendNothing(t *testing.T) {
	some(t, func(f *fixture) {
		g, wire := f.open(locally, func(c *singleflight.Config[string]) { c.Name += ":\n" })
		ctx, label := f.Context(), f.Family+"%3A%0A"
		for key, want := range map[string]string{"": "empty", strings.Repeat("x", 513): "513"} {
			for call, err := range everyCall(f, ctx, g, key) {
				redistest.WantErr(f, err, leasehold.ErrInvalid, redistest.Says("singleflight: "+call+" "+label, "key", want, "1 to 512"))
			}
			redistest.WantText(f, redistest.ErrorOf(g.DoMany(ctx, []string{"good", key}, nil)), "singleflight: do many "+label, want)
			redistest.WantText(f, g.Invalidate(ctx, "good", key), "singleflight: invalidate "+label, want)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		for _, err := range everyCall(f, ended, g, "k") {
			redistest.WantErr(f, err, context.Canceled, redistest.Not(leasehold.ErrUnavailable))
		}
		redistest.NoError(f, g.Invalidate(ctx))
		m, err := g.DoMany(ctx, nil, nil)
		redistest.Check(f, err == nil && m != nil && len(m) == 0, "%v, %v", m, err)
		redistest.Require(f, wire.Sent(), 0, "%d commands were sent")
		redistest.Require(f, redistest.Must(g.Do(ctx, strings.Repeat("x", 512), gives("v")))(f), "v", "it is %v")
	})
}

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
				redistest.CheckNow(f, err == nil && there == (source != 0) && r == (singleflight.Result[string]{Value: value, Source: source, Age: age}),
					"%+v, %v, %v; want %q, %v, %v", r, there, err, value, source, age)
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
		g, other, _ := f.two(mod)
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
			g, other, _ := f.two(func(c *singleflight.Config[string]) {
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
