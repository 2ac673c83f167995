package migration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dtm-labs/rockscache"
	"github.com/go-redis/cache/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
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

func (t *table) SaveUser(_ context.Context, u User) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users[u.ID] = u
	return nil
}

// sees reports whether reader sees what writer changes, where both have read
// before.
func sees(t *testing.T, id string, reader, writer program) bool {
	t.Helper()
	id += time.Now().String() // no other run's
	for _, p := range []program{reader, writer} {
		redistest.Must(p.get(t.Context(), id))(t)
	}
	want := User{ID: id, Name: "name of " + id}
	redistest.WantErr(t, writer.rename(t.Context(), want))
	return redistest.Must(reader.get(t.Context(), id))(t) == want
}

// checkCacheRollout rolls out each release among processes of the one before:
// a change by either is seen by the other. Between releases that are not
// neighbours it is not, which shows that the test can see that.
func checkCacheRollout(t *testing.T, releases ...program) {
	t.Helper()
	for i := 1; i < len(releases); i++ {
		a, b := releases[i-1], releases[i]
		if !sees(t, fmt.Sprintf("%d-ab", i), a, b) || !sees(t, fmt.Sprintf("%d-ba", i), b, a) {
			t.Errorf("releases %d and %d: a change is not seen", i-1, i)
		}
	}
	first, last := releases[0], releases[len(releases)-1]
	redistest.Check(t, !sees(t, "first-last", first, last), "the first release sees what the last one changes: what are those between for?")
}

func TestRolloutFromGoRedisCacheMissesNoChange(t *testing.T) {
	rdb := client(t)
	db := &table{users: map[string]User{}}
	old := cache.New(&cache.Options{Redis: rdb})
	users := redistest.Must(newUsers(rdb))(t)
	before, after := goredisCacheOnly(old, db), leaseholdCache(users, db)
	checkCacheRollout(t, before,
		goredisCacheBoth(before, old, users, db), goredisCacheBoth(after, old, users, db), after)
}

func TestRolloutFromRockscacheMissesNoChange(t *testing.T) {
	rdb := client(t)
	db := &table{users: map[string]User{}}
	// By default a reader is given the old value while the new one is loaded.
	opt := rockscache.NewDefaultOptions()
	opt.StrongConsistency = true
	old := rockscache.NewClient(rdb, opt)
	users := redistest.Must(newUsers(rdb))(t)
	before, after := rockscacheOnly(old, db), leaseholdCache(users, db)
	checkCacheRollout(t, before,
		rockscacheBoth(before, old, users, db), rockscacheBoth(after, old, users, db), after)
}
