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

// entries reads a sorted set from the score `from` on, in the order of scores,
// and gives each member once, with the last score that was seen of it.
//
// Each page begins at the last score of the page before, inclusive. Scores of
// what is listed only rise (renewals) or stay (tickets), so that an entry which is
// there all the time is either behind the place read so far, and was seen, or
// before it. By ranks it would not be: an entry that is renewed leaves its rank,
// and all behind it move up by one, past the place that is read next.
func (l *Lister) entries(ctx context.Context, key, from string, most int) ([]redis.Z, error) {
	var all []redis.Z
	at := map[string]int{} // of a member in all
	for count := int64(page); ; {
		var some []redis.Z
		err := retry(ctx, func() (err error) {
			some, err = l.rdb.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{
				Key: key, Start: from, Stop: "+inf", ByScore: true, Count: count,
			}).Result()
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
			// All of one score, as the permits of one request are: more at once, since
			// there is no place between them to go on from.
			count *= 2
			continue
		}
		from, count = last, page
	}
}

// Find looks for the lease or the waiter that listings show as id, and returns its
// entry in Redis; "" where there is none. Sets are named by their parts, and read in
// that order: an entry that moves meanwhile moves to a later one.
func (l *Lister) Find(ctx context.Context, r Resource, id string, parts ...string) (string, error) {
	handle, seq, _ := strings.Cut(id, "-")
	if len(id) > 8 { // the characters of a handle have dashes, too
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
			err := retry(ctx, func() (err error) {
				some, next, err = l.rdb.ZScan(ctx, r.Part(part), cursor, match, page).Result()
				return err
			})
			if err != nil {
				return "", err
			}
			for i := 0; i < len(some); i += 2 {
				entry, _, _ := strings.Cut(some[i], " ") // of loads that were invalidated: a token follows
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

// Schemas are the resource's other versions of a cached value that are in use.
func (l *Lister) Schemas(ctx context.Context, r Resource) ([]Resource, error) {
	var names []string
	err := retry(ctx, func() (err error) {
		names, err = l.rdb.ZRange(ctx, r.base+"schemas", 0, -1).Result()
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

// score writes a score as the server reads it, without loss.
func score(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
