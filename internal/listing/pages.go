package listing

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
)

// page is how many entries of a sorted set one call reads.
const page = 1000

// ErrTooMany says that a key has more entries than the caller wants to read.
var ErrTooMany = errors.New("more entries than asked for")

// entries reads a sorted set from the score from on, in the order of scores. It returns each
// member once, with the last score that it saw.
//
// Each page begins with the last score of the page before. The scores of the listed entries
// only rise (by renewals) or stay (tickets). So an entry that is there all the time is either
// before the position that was read last, and has been seen, or it is after that position.
// Paging by ranks would not have this property: a renewed entry leaves its rank, and all
// entries behind it move up by one, so that one of them moves past the next position unseen.
func (l *Lister) entries(ctx context.Context, key, from string, most int) ([]redis.Z, error) {
	var all []redis.Z
	at := map[string]int{} // the index of a member in all
	for count := int64(page); ; {
		var some []redis.Z
		err := l.retry(ctx, func() (err error) {
			some, err = replied(l.primary(ctx, key).ZRangeArgsWithScores(ctx, redis.ZRangeArgs{
				Key: key, Start: from, Stop: "+inf", ByScore: true, Count: count,
			}).Result())
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, z := range some {
			name, _ := z.Member.(string)
			if i, double := at[name]; double {
				all[i].Score = z.Score
				continue
			}
			at[name] = len(all)
			all = append(all, z)
		}
		if len(all) > most {
			return all[:most], ErrTooMany
		}
		if int64(len(some)) < count {
			return all, nil
		}
		last := score(some[len(some)-1].Score)
		if last == from {
			// All entries have the same score, as the permits of one request do. There is no
			// position between them to go on from, so more are read at once.
			count *= 2
			continue
		}
		from, count = last, page
	}
}

// Find returns the entry in Redis of the lease or the waiter that listings show as id, or ""
// if there is none. parts names the sets to read, in this order. Put a set to which entries
// move after the set that they come from, so that a moving entry is not missed.
func (l *Lister) Find(ctx context.Context, r Resource, id string, parts ...string) (string, error) {
	handle, seq, _ := strings.Cut(id, "-")
	if len(id) > 8 { // the characters of a handle may be dashes too
		handle, seq = id[:8], id[9:]
	}
	match := handle + "*." + seq + ".*"
	if r.HasTotal {
		match = escapePattern(keys.Escape(r.Key)) + ":" + match
	}
	for _, part := range parts {
		for cursor := uint64(0); ; {
			var some []string
			var next uint64
			err := l.retry(ctx, func() (err error) {
				some, next, err = l.primary(ctx, r.base).ZScan(ctx, r.Part(part), cursor, match, page).Result()
				some, err = replied(some, err)
				return err
			})
			if err != nil {
				return "", err
			}
			for i := 0; i < len(some); i += 2 {
				entry := some[i]
				if !r.HasTotal { // a tenant may have spaces; in the entry of an invalidated load a token follows
					entry, _, _ = strings.Cut(entry, " ")
				}
				if m, ok := parseMember(entry, r.HasTotal); ok && m.id == id && !r.another(m) {
					return m.first, nil
				}
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return "", nil
}

// Schemas returns the other schemas of a cached value that are in use.
func (l *Lister) Schemas(ctx context.Context, r Resource) ([]Resource, error) {
	var names []string
	err := l.retry(ctx, func() (err error) {
		names, err = replied(l.primary(ctx, r.base).ZRange(ctx, r.base+"schemas", 0, -1).Result())
		return err
	})
	var all []Resource
	for _, name := range names {
		if name == "0" {
			name = ""
		}
		if name != r.Schema {
			other := r
			other.Schema = name
			all = append(all, other)
		}
	}
	return all, err
}

// score formats a score for the server, without loss.
func score(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
