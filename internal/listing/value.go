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

// stored is what is asked of a cached value: its header, its size, and how long it and a failure are kept.
type stored struct {
	head         *redis.StringCmd
	size         *redis.IntCmd
	kept, failed *redis.DurationCmd
}

func askStored(ctx context.Context, p redis.Pipeliner, r Resource) *stored {
	value := r.Part("value")
	return &stored{p.GetRange(ctx, value, 0, headBytes-1), p.StrLen(ctx, value), p.PTTL(ctx, value), p.PTTL(ctx, r.Part("failure"))}
}

// value returns nil if there is none.
func (q *stored) value(now time.Time) *Value {
	v := &Value{Bytes: int(q.size.Val()), KeptFor: q.kept.Val()}
	if v.Bytes <= 0 || v.KeptFor <= 0 {
		return nil
	}
	if e, err := envelope.Header(q.head.Val()); err == nil {
		v.Known = true
		v.Published = time.UnixMicro(e.Published)
		v.FreshFor = v.Published.Add(e.Fresh).Sub(now)
		v.NotFound = e.Kind == envelope.NotFound
	}
	return v
}

func (q *stored) failedFor() time.Duration { return max(0, q.failed.Val()) }

// cached reads a cached value's header, its remembered failure, the invalidated loads that still
// run, and how many handles may serve a copy from memory.
func (l *Lister) cached(ctx context.Context, s *State) error {
	var q *stored
	var aside *redis.ZSliceCmd
	var near *redis.IntCmd
	now := s.At.UnixMilli()
	after := "(" + strconv.FormatInt(now, 10)
	err := l.retry(ctx, func() error {
		pipe := l.primary(ctx, s.base).Pipeline()
		q = askStored(ctx, pipe, s.Resource)
		aside = pipe.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: s.Part("aside"), Start: after, Stop: "+inf", ByScore: true, Count: page})
		near = pipe.ZCount(ctx, s.base+"near", after, "+inf") // of all schemas
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
	s.Value, s.FailedFor = q.value(s.At), q.failedFor()
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

func (l *Lister) guard(ctx context.Context, s *State) error {
	text, err := l.text(ctx, s, "seen")
	if err != nil || text == "" {
		return err
	}
	if s.Token, err = strconv.ParseUint(text, 10, 64); err != nil {
		return fmt.Errorf("the stored token is not a number")
	}
	return nil
}

// text reads a part that is a text; "" if there is none.
func (l *Lister) text(ctx context.Context, s *State, part string) (text string, err error) {
	err = l.retry(ctx, func() (err error) {
		text, err = l.primary(ctx, s.base).Get(ctx, s.Part(part)).Result()
		switch {
		case err == redis.Nil:
			return nil
		case err == nil && text == "":
			return errNoReply
		}
		return err
	})
	return text, err
}
