package multi

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/several"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

const pkg = "multi"

// Item is one of the things that are taken together.
type Item struct {
	part  several.Part
	locks *mutex.Mutex // of a lock
}

// Permits is n permits of a key of s. The bounds of n are those of AcquireN. Config.LocalFor is
// passed by: a turn that waits for another item would stop its process's line.
func Permits(s *semaphore.Semaphore, key string, n int) Item {
	if s == nil {
		return Item{part: several.Part{Err: call.Fail(pkg, "permits", keys.Escape(key), keys.Invalid("the semaphore is nil; want one of semaphore.New"))}}
	}
	return Item{part: several.Permits(s, key, n)}
}

// Lock is the lock of a key of m. Config.LocalFor is passed by, as for [Permits]. Locks of
// mutex.NewQuorum are refused.
func Lock(m *mutex.Mutex, key string) Item {
	if m == nil {
		return Item{part: several.Part{Err: call.Fail(pkg, "lock", keys.Escape(key), keys.Invalid("the mutex is nil; want one of mutex.New"))}}
	}
	return Item{part: several.Lock(m, key), locks: m}
}

// taken is an item of a call, with what is held of it.
type taken struct {
	Item
	label string // as in errors
	name  string // in Redis; it decides the order
	lease *lease.Lease
	began time.Time // of the attempt that got the lease
	wait  bool      // it was queued
}

// inOrder checks the items of a call, and returns them in the order in which all callers take
// them.
func inOrder(op string, items []Item) ([]*taken, error) {
	if len(items) == 0 {
		return nil, call.Fail(pkg, op, "", keys.Invalid("there are no items; want at least 1"))
	}
	all := make([]*taken, len(items))
	for i, item := range items {
		p := item.part
		if p.Err != nil {
			return nil, p.Err
		}
		if p.Manager == nil {
			return nil, call.Fail(pkg, op, "", keys.Invalid("item %d is empty; want Permits or Lock", i+1))
		}
		r, err := p.Manager.Resource(p.Attempt.Key)
		if err != nil {
			return nil, p.Manager.Reject(op, p.Attempt.Key, err)
		}
		all[i] = &taken{Item: item, label: r.Label(), name: r.FirstKey(), began: time.Now()}
	}
	slices.SortFunc(all, func(a, b *taken) int { return cmp.Compare(a.name, b.name) })
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		switch {
		case a.name != b.name:
		case a.label == b.label:
			return nil, call.Fail(pkg, op, a.label, keys.Invalid("is named twice, perhaps of two handles or servers; such calls cannot be ordered"))
		default:
			return nil, call.Fail(pkg, op, a.label, keys.Invalid("and %s are keys of one family with a Total; callers would hold its permits while they wait for others of it", b.label))
		}
	}
	return all, nil
}
