package listing

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/envelope"
)

// headBytes is how much of a cached value is read, which is enough for its header.
const headBytes = 128

// cached reads a cached value's header, its remembered failure, the invalidated loads that still
// run, and how many handles may serve a copy from memory.
func (l *Lister) cached(ctx context.Context, s *State) error {
	var head *redis.StringCmd
	var size *redis.IntCmd
	var kept, failed *redis.DurationCmd
	var aside *redis.ZSliceCmd
	var near *redis.IntCmd
	now := s.At.UnixMilli()
	err := l.retry(ctx, func() error {
		pipe := l.primary(ctx, s.base).Pipeline()
		head = pipe.GetRange(ctx, s.Part("value"), 0, headBytes-1)
		size = pipe.StrLen(ctx, s.Part("value"))
		kept, failed = pipe.PTTL(ctx, s.Part("value")), pipe.PTTL(ctx, s.Part("failure"))
		aside = pipe.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{
			Key: s.Part("aside"), Start: "(" + strconv.FormatInt(now, 10), Stop: "+inf", ByScore: true, Count: page,
		})
		near = pipe.ZCount(ctx, s.base+"near", "("+strconv.FormatInt(now, 10), "+inf") // of all schemas
		_, err := pipe.Exec(ctx)
		if err == nil {
			_, err = replied(aside.Result())
		}
		return err
	})
	if err != nil {
		return err
	}
	s.Near = int(near.Val())
	if kept.Val() > 0 && size.Val() > 0 {
		s.Value = value(s.At, head.Val(), int(size.Val()), kept.Val())
	}
	s.FailedFor = max(0, failed.Val())
	for _, z := range aside.Val() {
		text, _ := z.Member.(string)
		name, number, _ := strings.Cut(text, " ")
		m, ok := parseMember(name, false)
		token, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil {
			continue
		}
		since := time.UnixMicro(token)
		if since.After(s.At) {
			since = s.At
		}
		s.Holders = append(s.Holders, Holder{Aside: true, Holder: leasehold.Holder{
			ID: m.id, Permits: 1, Label: m.label, Since: since,
			ExpiresIn: time.Duration(int64(z.Score)-now) * time.Millisecond,
		}})
	}
	return nil
}

func value(now time.Time, head string, size int, kept time.Duration) *Value {
	v := &Value{Bytes: size, KeptFor: kept}
	e, err := envelope.Header(head)
	if err != nil {
		return v
	}
	v.Known = true
	v.Published = time.UnixMicro(e.Published)
	v.FreshFor = v.Published.Add(e.Fresh).Sub(now)
	v.NotFound = e.Kind == envelope.NotFound
	return v
}

func (l *Lister) guard(ctx context.Context, s *State) error {
	var seen *redis.StringCmd
	var kept *redis.DurationCmd
	err := l.retry(ctx, func() error {
		pipe := l.primary(ctx, s.base).Pipeline()
		seen, kept = pipe.Get(ctx, s.Part("seen")), pipe.PTTL(ctx, s.Part("value"))
		_, err := pipe.Exec(ctx)
		switch {
		case err == redis.Nil: // there is no token
			return nil
		case err == nil && seen.Val() == "":
			return errNoReply
		}
		return err
	})
	if err != nil {
		return err
	}
	if text := seen.Val(); text != "" {
		if s.Token, err = strconv.ParseUint(text, 10, 64); err != nil {
			return fmt.Errorf("the stored token is not a number")
		}
	}
	// -2: no such key; -1: a key without an expiry. go-redis returns both unchanged.
	s.Guarded = kept.Val() != -2
	s.KeptFor = max(0, kept.Val())
	return nil
}
