package migration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dtm-labs/rockscache"
	"github.com/go-redis/cache/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// table is a database.
type table struct {
	mu    sync.Mutex
	users map[string]User
}

func (t *table) User(_ context.Context, id string) (User, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.users[id], nil
}

// sees reports whether reader sees what writer changes, where both have read
// before.
func (t *table) sees(tb testing.TB, id string, reader, writer program) bool {
	tb.Helper()
	id += time.Now().String() // no other run's
	for _, p := range []program{reader, writer} {
		redistest.Must(p.get(tb.Context(), id))(tb)
	}
	want := User{ID: id, Name: "name of " + id}
	t.mu.Lock()
	t.users[id] = want
	t.mu.Unlock()
	redistest.WantErr(tb, writer.invalidate(tb.Context(), id))
	return redistest.Must(reader.get(tb.Context(), id))(tb) == want
}

// checkRollout rolls out each release among processes of the one before:
// a change by either is seen by the other. Between releases that are not
// neighbours it is not, which shows that the test can see that.
func (t *table) checkRollout(tb testing.TB, rdb *redis.Client, first program) {
	tb.Helper()
	users := redistest.Must(singleflight.New(rdb, singleflight.Config[User]{Name: "users", TTL: time.Minute}))(tb)
	last := leaseholdCache(users, t)
	releases := []program{first, invalidatesBoth(first, last), invalidatesBoth(last, first), last}
	for i := 1; i < len(releases); i++ {
		a, b := releases[i-1], releases[i]
		redistest.Check(tb, t.sees(tb, fmt.Sprintf("%d-ab", i), a, b) && t.sees(tb, fmt.Sprintf("%d-ba", i), b, a),
			"releases %d and %d: a change is not seen", i-1, i)
	}
	redistest.Check(tb, !t.sees(tb, "first-last", first, last), "the first release sees what the last one changes: what are those between for?")
}

func TestRolloutFromGoRedisCacheMissesNoChange(t *testing.T) {
	rdb, db := client(t), &table{users: map[string]User{}}
	db.checkRollout(t, rdb, goredisCacheOnly(cache.New(&cache.Options{Redis: rdb}), db))
}

func TestRolloutFromRockscacheMissesNoChange(t *testing.T) {
	rdb, db := client(t), &table{users: map[string]User{}}
	// By default a reader is given the old value while the new one is loaded.
	opt := rockscache.NewDefaultOptions()
	opt.StrongConsistency = true
	db.checkRollout(t, rdb, rockscacheOnly(rockscache.NewClient(rdb, opt), db))
}
