package singleflight

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/loads"
)

const (
	// minKept is how long a value stays in Redis after its TTL at least. A process that was
	// told that the value has been published still finds it, however short the TTL.
	minKept = time.Second
	// tooLargeFor is how long a key counts as one whose values are too large.
	tooLargeFor = time.Second
)

// entry describes what the cache holds for a key.
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
	g.cfg.Logger.Warn("leasehold: singleflight: an entry in the cache is not a value of this group: it counts as absent",
		"key", t.Label, "error", err)
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
