package singleflight

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/near"
	"github.com/leasehold-go/leasehold/internal/nested"
)

type verdict int

const (
	miss         verdict = iota // the call has to wait or to load
	hit                         // the call is served
	hitAndEarly                 // the call is served; the value should be rebuilt before its TTL is over
	hitAndStale                 // the call is served a stale value, which should be rebuilt
	unobtainable                // Redis did not answer
)

type look[T any] struct {
	verdict  verdict
	result   Result[T]      // what a hit returns
	errs     []error        // or what is returned instead
	rejected loads.Rejected // unless it is a hit: the entry that was found, which a load is to replace
	stale    *Result[T]     // instead of a hit: a stale value that may still be served; nil: none
	copy     *near.Copy     // the copy in memory that was served; nil: none
}

// lookUp reads the cache, with one GET, and judges the entry.
func (g *Group[T]) lookUp(ctx context.Context, t target) look[T] {
	if err := ctx.Err(); err != nil {
		return look[T]{verdict: unobtainable, errs: []error{err}}
	}
	var raw string
	now, err := g.reach(ctx, t.value)
	if err == nil {
		bounded, cancel := g.manager.Client().WithBound(ctx)
		defer cancel()
		raw, err = g.manager.Client().Get(bounded, t.value)
	}
	return g.consider(ctx, t, raw, now, err)
}

// reach returns the server's time for a look-up, which does not wait for a server that is known
// to be away. The first look-up waits for a Cluster's topology and for the time, over connections that begin. So it
// waits within a bound of its own: over a long way nothing would be left of the read's.
func (g *Group[T]) reach(ctx context.Context, key string) (int64, error) {
	client := g.manager.Client()
	if err := client.Reachable(ctx, key); err != nil {
		return 0, err
	}
	if now, wait := client.Now(key); wait == nil {
		return now, nil
	}
	bounded, cancel := client.WithBound(ctx)
	defer cancel()
	return client.Time(bounded, key)
}

// boundAsSlow returns err. If err is from the deadline that WithBound added to ctx, it returns
// call.ErrSlow instead, because the caller must not take that deadline for its own.
func boundAsSlow(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return call.ErrSlow
	}
	return err
}

// lookUpMany is lookUp for several requests, in one round trip per server. It asks the servers
// at the same time, and none about keys that it finds in memory.
func (g *Group[T]) lookUpMany(ctx context.Context, open []*request[T]) []look[T] {
	all := make([]look[T], len(open))
	var names []string
	var asked []int // indices of open, in the order of names
	for i, q := range open {
		if err := ctx.Err(); err != nil {
			all[i] = look[T]{verdict: unobtainable, errs: []error{err}}
		} else if seen, ok := g.inMemory(ctx, q.key); ok {
			all[i] = seen
		} else {
			names, asked = append(names, q.value), append(asked, i)
		}
	}
	if len(names) == 0 {
		return all
	}
	g.manager.Client().ByNode(names, func(which []int) {
		some := make([]string, len(which))
		for n, i := range which {
			some[n] = names[i]
		}
		now, err := g.reach(ctx, some[0])
		found := make([]call.Found, len(some))
		if err == nil {
			bounded, cancel := g.manager.Client().WithBound(ctx)
			defer cancel()
			found = g.manager.Client().GetMany(bounded, some)
		}
		for n, i := range which {
			all[asked[i]] = g.consider(ctx, open[asked[i]].target, found[n].Text, now, cmp.Or(err, found[n].Err))
		}
	})
	return all
}

// consider decides what the answer to a GET means for a call: the entry in raw, at the server's
// time now, or an error.
func (g *Group[T]) consider(ctx context.Context, t target, raw string, now int64, err error) look[T] {
	if errors.Is(err, redis.Nil) {
		err = nil // raw is ""
	}
	g.manager.Reached(t.value, err)
	if err != nil {
		return g.unobtained(ctx, t.key, []error{ctx.Err(), leasehold.ErrUnavailable, boundAsSlow(ctx, err)})
	}
	e := g.judge(t, raw, now, false)
	g.seen(t, raw, e)
	from := Cached
	switch {
	case e.fresh() && e.env.Kind == envelope.NotFound:
		return look[T]{verdict: hit, result: Result[T]{Source: Cached}, errs: errsNotFound}
	case e.fresh():
	case e.stale(max(g.cfg.StaleFor, g.cfg.StaleIfError)):
		from = Stale
	default:
		return look[T]{rejected: e.rejected}
	}
	if g.ownCode { // decoding ends with ctx
		ctx = nested.Calm{Context: ctx}
	}
	value, err := g.decode(ctx, e.env.Payload)
	r := Result[T]{Value: value, Source: from, Age: e.age}
	switch {
	case err != nil && ctx.Err() != nil:
		return look[T]{verdict: unobtainable, errs: []error{ctx.Err()}}
	case err != nil:
		g.undecodable(ctx, t, err)
		return look[T]{rejected: loads.Rejected{Value: sum(raw)}}
	case from == Stale && e.stale(g.cfg.StaleFor) && g.cfg.SoftTimeout == 0:
		return look[T]{verdict: hitAndStale, result: r, rejected: e.rejected}
	case from == Stale:
		return look[T]{rejected: e.rejected, stale: new(r)}
	case g.refreshesEarly(e):
		return look[T]{verdict: hitAndEarly, result: r, rejected: e.rejected}
	}
	return look[T]{verdict: hit, result: r}
}

// serverTime returns the server's present time, for work that no caller's ctx bounds. It asks
// the server only if it does not know the time yet. After an error the time is 0.
func (g *Group[T]) serverTime(t target) (int64, error) {
	ctx, cancel := g.manager.Client().WithBound(context.Background())
	defer cancel()
	now, err := g.manager.Client().Time(ctx, t.value)
	return now, boundAsSlow(context.Background(), err)
}

// get reads a key for many callers. No caller's ctx bounds it.
func (g *Group[T]) get(key string) (string, error) {
	text, err := g.manager.Client().GetApart(key)
	return text, boundAsSlow(context.Background(), err)
}

const (
	// minKept is how long a value stays in Redis after its TTL at least. A process that was
	// told that the value has been published still finds it, however short the TTL.
	minKept = time.Second
	// tooLargeFor is how long a key counts as one whose values are too large.
	tooLargeFor = time.Second
)

type entry struct {
	env      envelope.Envelope
	usable   bool           // env may be served, if its age allows it
	age      time.Duration  // since it was published
	rejected loads.Rejected // names the entry to the scripts, for a request that it does not serve
}

// fresh reports whether the entry can be served and its TTL is not over.
func (e entry) fresh() bool { return e.usable && e.age < e.env.Fresh }

// stale reports whether the entry is a value whose TTL was over less than d ago.
func (e entry) stale(d time.Duration) bool {
	return e.usable && e.env.Kind == envelope.Value && e.age-e.env.Fresh < d
}

// judge decides whether the bytes in the cache can be served, at the server's time now.
// fromScript says that a script has read them, so they are not a copy from the client's cache.
func (g *Group[T]) judge(t target, raw string, now int64, fromScript bool) entry {
	if raw == "" {
		return entry{}
	}
	e := entry{rejected: loads.Rejected{Value: envelope.Head(raw)}}
	env, err := envelope.Decode(raw)
	switch {
	case err == nil && env.Kind != envelope.Value && env.Kind != envelope.NotFound:
		err = errNoValue
	case err == nil && len(env.Payload) > g.cfg.MaxValueBytes:
		err = ErrTooLarge
	}
	if err != nil {
		g.undecodable(context.Background(), t, err)
		e.rejected.Value = sum(raw)
		return e
	}
	if env.Schema != g.cfg.Schema || (!fromScript && g.invalidatedAt.refuses(t.value, env.Published)) {
		return e
	}
	if now > 0 && env.Published-now > time.Second.Microseconds() { // its clock was set forth since it was asked for
		g.manager.Client().Doubt(t.value)
	}
	e.env, e.usable = env, true
	e.age = max(0, time.Duration(now-env.Published)*time.Microsecond)
	return e
}

// judgeNow is like judge, at the server's present time. If that cannot be learned, the entry
// counts as just published.
func (g *Group[T]) judgeNow(t target, raw string, fromScript bool) entry {
	now, _ := g.serverTime(t) // 0 after an error
	return g.judge(t, raw, now, fromScript)
}

var (
	errNoValue   = errors.New("the envelope holds no value")
	errNoFailure = errors.New("the envelope holds no failure")
)

// isFailure reports whether an envelope of this kind holds a failure that may be remembered.
func isFailure(k envelope.Kind) bool {
	return k == envelope.Failure || k == envelope.Timeout
}

// sum names bytes that are not an envelope. The scripts can compute the same name.
func sum(raw string) string {
	h := sha1.Sum([]byte(raw))
	return hex.EncodeToString(h[:])
}

// undecodable reports an entry that cannot be decoded and so is treated as absent. The end of
// ctx, with which decoding ends, says nothing about the entry.
func (g *Group[T]) undecodable(ctx context.Context, t target, err error) {
	if ctx.Err() != nil {
		return
	}
	g.counts.undecodable.Add(1)
	g.observe(leasehold.Event{Kind: leasehold.EventDecodeFailed})
	g.log(slog.LevelWarn, "an entry in the cache is not a value of this group; it counts as absent and is loaded anew; another program or type may use its key",
		t, slog.Any("error", err))
}

// ttl returns how long a value is fresh, jitter included. Negative: it is not stored.
func (g *Group[T]) ttl(key string, v T) time.Duration {
	ttl := g.cfg.TTL
	if g.cfg.TTLFor != nil {
		switch d := g.cfg.TTLFor(key, v); {
		case d < 0:
			return -1
		case d > 0:
			ttl = min(d, maxLife)
		}
	}
	return g.jittered(ttl)
}

func (g *Group[T]) jittered(ttl time.Duration) time.Duration {
	return max(time.Millisecond, ttl+time.Duration(g.cfg.Jitter*(2*rand.Float64()-1)*float64(ttl)))
}

// kept returns how long a value that is fresh for ttl stays in Redis.
func (g *Group[T]) kept(ttl time.Duration) time.Duration {
	return ttl + max(g.cfg.StaleFor, g.cfg.StaleIfError, minKept)
}

// refreshesEarly reports, at random, whether a fresh value should already be rebuilt. It
// implements XFetch.
func (g *Group[T]) refreshesEarly(e entry) bool {
	if g.cfg.EarlyRefresh == 0 || e.env.Kind != envelope.Value {
		return false
	}
	ahead := float64(e.env.Took) * g.cfg.EarlyRefresh * -math.Log(1-rand.Float64())
	return float64(e.env.Fresh-e.age) < ahead
}
