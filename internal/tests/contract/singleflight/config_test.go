package singleflight

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
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

// A type that msgpack does not bring back needs a Codec: internal/codec has which.
func TestNewRefusesATypeThatNeedsACodec(t *testing.T) {
	t.Parallel()
	cfg := singleflight.Config[any]{Name: "n", TTL: time.Minute}
	_, err := singleflight.New(nowhere(t), cfg)
	redistest.WantErr(t, err, leasehold.ErrInvalid, redistest.Says("T can't be encoded", "T is interface {}", "want a type", "a Codec"))
	cfg.Codec = &jsonCodec{}
	redistest.NoError(t, redistest.ErrorOf(singleflight.New(nowhere(t), cfg)))
}

func TestNewNamesABadClient(t *testing.T) {
	t.Parallel()
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
