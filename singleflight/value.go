package singleflight

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/envelope"
)

// minKept is how long a value stays in Redis after its TTL at least, so that who
// was told that it has been published still finds it, however short the TTL.
const minKept = time.Second

// marked is how long a key counts as one whose values are too large.
const marked = time.Second

// encode turns a value into bytes: []byte and string as they are, unless there
// is a Codec that has to see them (one that encrypts, say).
func (g *Group[T]) encode(v T) (data string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the codec panicked: %v", p)
		}
	}()
	if g.cfg.Codec == nil {
		switch raw := any(v).(type) {
		case []byte:
			return string(raw), nil
		case string:
			return raw, nil
		}
		b, err := envelope.Msgpack{}.Marshal(&v) // so that methods of *T are found
		return string(b), err
	}
	b, err := g.cfg.Codec.Marshal(v)
	return string(b), err
}

// decode makes a value of its own from the bytes of one.
func (g *Group[T]) decode(data string) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the codec panicked: %v", p)
		}
	}()
	if g.cfg.Codec == nil {
		switch p := any(&v).(type) {
		case *[]byte:
			*p = []byte(data)
			return v, nil
		case *string:
			*p = data
			return v, nil
		}
		err = envelope.Msgpack{}.UnmarshalString(data, &v)
		return v, err
	}
	err = g.cfg.Codec.Unmarshal([]byte(data), &v)
	return v, err
}

// ttl is how long a value is to be fresh, jitter included; negative: not stored.
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

// kept is how long a value that is fresh for ttl stays in Redis.
func (g *Group[T]) kept(ttl time.Duration) time.Duration {
	return ttl + max(g.cfg.StaleFor, g.cfg.StaleIfError, minKept)
}

// early reports whether a fresh value should be rebuilt already: XFetch.
func (g *Group[T]) early(e envelope.Envelope, age time.Duration) bool {
	if g.cfg.EarlyRefresh == 0 || e.Kind != envelope.Value {
		return false
	}
	ahead := float64(e.Took) * g.cfg.EarlyRefresh * -math.Log(1-rand.Float64())
	return float64(e.Fresh-age) < ahead
}

// view is what a look into the cache showed.
type view struct {
	env   envelope.Envelope
	there bool          // env is usable, fresh or not
	age   time.Duration // since it was published
	look  engine.Look   // names it to the script, as what won't do
}

// fresh reports whether its TTL is not over.
func (v view) fresh() bool { return v.there && v.age < v.env.Fresh }

// stale reports whether it can be served although its TTL was over up to d ago.
func (v view) stale(d time.Duration) bool {
	return v.there && v.env.Kind == envelope.Value && v.age-v.env.Fresh < d
}

// judge says what the bytes in the cache are worth, at the server's time now.
// sure: a script has read them, so that they can't be a client's own copy.
func (g *Group[T]) judge(t target, raw string, now int64, sure bool) view {
	if raw == "" {
		return view{}
	}
	v := view{look: engine.Look{Seen: envelope.Head(raw)}}
	e, err := envelope.Decode(raw)
	switch {
	case err == nil && e.Kind != envelope.Value && e.Kind != envelope.NotFound:
		err = errNoValue
	case err == nil && len(e.Payload) > g.cfg.MaxValueBytes:
		err = ErrTooLarge
	}
	if err != nil {
		g.undecodable(t, err)
		v.look.Seen = sum(raw)
		return v
	}
	if e.Schema != g.cfg.Schema || (!sure && g.floors.refuses(t.value, e.Published)) {
		return v
	}
	v.env, v.there = e, true
	v.age = max(0, time.Duration(now-e.Published)*time.Microsecond)
	return v
}

var errNoValue = errors.New("the envelope holds no value")

// sum names bytes that are no envelope exactly, as the scripts can.
func sum(raw string) string {
	h := sha1.Sum([]byte(raw))
	return hex.EncodeToString(h[:])
}

// undecodable reports an entry that is treated as absent.
func (g *Group[T]) undecodable(t target, err error) {
	g.counts.undecodable.Add(1)
	g.cfg.Logger.Warn("leasehold: singleflight: an entry in the cache is no value of this group: it counts as absent",
		"key", t.Label, "error", err)
}

// crossing is a text as it crosses: whole characters, and not too many.
func crossing(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), 2*maxText)], "\uFFFD")
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// asError is the error that an envelope without a value stands for.
func asError(e envelope.Envelope) error {
	if e.Kind == envelope.NotFound {
		return ErrNotFound
	}
	return &RemoteError{Text: e.Payload, kind: e.Kind}
}
