package singleflight

import (
	"sync"
	"time"
)

// maxInvalidated is how many keys invalidatedAt tells apart.
const maxInvalidated = 10_000

// invalidatedAt remembers when this handle invalidated which key, for clients that
// cache by themselves: what such a cache still has of before is refused here,
// until the server's message has reached it. A nil one refuses nothing.
//
// It tells maxInvalidated keys apart. Of older invalidations it only knows the time of
// the last one: what was published before that is refused for all keys, as long as it
// may be cached. A value that is refused costs a script call, which finds it in Redis.
type invalidatedAt struct {
	life time.Duration // longer than values of TTL live; longer ones of TTLFor are told by the server, in ms

	mu    sync.RWMutex // guards what follows; a leaf: nothing else is locked while it is held
	all   map[string]invalidation
	order []string     // the keys of all, as they were first invalidated
	older invalidation // the latest of those that are not in all any more
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
	if at, ok := x.all[key]; ok && published <= at.us {
		return true
	}
	return published <= x.older.us && time.Now().Before(x.older.till)
}

// raise notes an invalidation at a server time (µs).
func (x *invalidatedAt) raise(key string, us int64) {
	if x == nil {
		return
	}
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	old, known := x.all[key]
	x.all[key] = invalidation{us: max(us, old.us), till: now.Add(x.life)} // replies may come out of order
	if !known {
		x.order = append(x.order, key)
	}
	for len(x.order) > 0 {
		first := x.all[x.order[0]]
		over := !now.Before(first.till)
		if !over && len(x.all) <= maxInvalidated {
			return
		}
		if !over {
			x.older = invalidation{us: max(x.older.us, first.us), till: now.Add(x.life)}
		}
		delete(x.all, x.order[0])
		x.order = x.order[1:]
	}
}
