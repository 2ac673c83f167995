package singleflight

import (
	"sync"
	"time"
)

// maxInvalidated is the number of keys that an invalidatedAt remembers individually.
const maxInvalidated = 10_000

// invalidatedAt remembers when this handle invalidated which key. It is for clients that cache
// by themselves. Such a cache may still return what was published before the invalidation,
// until the server's message has reached it. Such a value is refused here. A nil invalidatedAt
// refuses nothing.
//
// It remembers maxInvalidated keys individually. Of all older invalidations it knows only the
// time of the latest one, and refuses whatever was published before that, for all keys, for as
// long as it may be cached. A refused value costs a script call, which finds it in Redis.
type invalidatedAt struct {
	// life is how long an invalidation is remembered: longer than a value with TTL lives. TTLFor
	// may let a value live longer, but the server's message ends that one within ms.
	life time.Duration

	mu    sync.RWMutex // guards the fields below; no other lock is taken while it is held
	all   map[string]invalidation
	order []string     // the keys of all, in the order of their first invalidation
	older invalidation // the latest of those that were removed from all
}

type invalidation struct {
	us   int64 // server time, µs
	till time.Time
}

func newInvalidatedAt(life time.Duration) *invalidatedAt {
	return &invalidatedAt{life: life, all: map[string]invalidation{}}
}

// refuses reports whether a value that was published at this server time (µs) is older than
// the last invalidation of its key.
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
