package singleflight

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// floors keeps when this handle last invalidated which key, for clients that
// cache by themselves: what such a cache still has of before is refused here,
// until the server's message has reached it.
type floors struct {
	life time.Duration // longer than values of TTL live; longer ones of TTLFor are told by the server, in ms

	mu  sync.RWMutex
	all map[string]floor
}

type floor struct {
	us   int64
	till time.Time
}

func newFloors(life time.Duration) *floors { return &floors{life: life, all: map[string]floor{}} }

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

func (f *floors) refuses(key string, published int64) bool {
	if f == nil {
		return false
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	at, ok := f.all[key]
	return ok && published <= at.us
}

func (f *floors) raise(key string, us int64) {
	if f == nil {
		return
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) > 1000 && rand.N(len(f.all)) < 10 {
		for k, old := range f.all {
			if now.After(old.till) {
				delete(f.all, k)
			}
		}
	}
	f.all[key] = floor{us: max(us, f.all[key].us), till: now.Add(f.life)} // replies may come out of order
}
