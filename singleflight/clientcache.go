package singleflight

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// cachesLocally reports whether a client may answer a GET without asking.
func cachesLocally(rdb redis.UniversalClient) bool {
	switch c := rdb.(type) {
	case *redis.Client:
		return c.Options().ClientSideCacheConfig != nil || c.Options().ClientSideCache != nil
	case *redis.ClusterClient:
		return false // go-redis has no client-side caching there
	}
	return true
}

// invalidatedAt remembers when this handle invalidated which key, for clients that
// cache by themselves: what such a cache still has of before is refused here,
// until the server's message has reached it. A nil one refuses nothing.
type invalidatedAt struct {
	life time.Duration // longer than values of TTL live; longer ones of TTLFor are told by the server, in ms

	mu  sync.RWMutex // guards all; a leaf: nothing else is locked while it is held
	all map[string]invalidation
}

type invalidation struct {
	us   int64 // server
	till time.Time
}

func newInvalidatedAt(life time.Duration) *invalidatedAt {
	return &invalidatedAt{life: life, all: map[string]invalidation{}}
}

// refuses reports whether what was published at that server time (µs) is older than
// the last invalidation.
func (x *invalidatedAt) refuses(key string, published int64) bool {
	if x == nil {
		return false
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	at, ok := x.all[key]
	return ok && published <= at.us
}

// raise notes an invalidation at a server time (µs).
func (x *invalidatedAt) raise(key string, us int64) {
	if x == nil {
		return
	}
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.all) > 1000 && rand.N(len(x.all)) < 10 {
		for k, old := range x.all {
			if now.After(old.till) {
				delete(x.all, k)
			}
		}
	}
	x.all[key] = invalidation{us: max(us, x.all[key].us), till: now.Add(x.life)} // replies may come out of order
}
