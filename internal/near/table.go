package near

import (
	"hash/maphash"
	"sync/atomic"
)

// A table maps keys to copies. Any number of goroutines look keys up, without a lock. Changes
// are made under the lock of the cache.
//
// A goroutine may still walk nodes, or an array, that were replaced meanwhile, and find a copy
// that is not in the table any more. Such a copy is marked as dropped before it is taken out.
type table struct {
	seed    maphash.Seed
	buckets atomic.Pointer[[]atomic.Pointer[node]] // their number is a power of two
	count   int
}

type node struct {
	hash uint64
	key  string
	copy atomic.Pointer[Copy]
	next atomic.Pointer[node]
}

const minBuckets = 64

func newTable() *table {
	t := &table{seed: maphash.MakeSeed()}
	first := make([]atomic.Pointer[node], minBuckets)
	t.buckets.Store(&first)
	return t
}

func (t *table) hash(key string) uint64 { return maphash.String(t.seed, key) }

func (t *table) get(key string) *Copy {
	hash := t.hash(key)
	buckets := *t.buckets.Load()
	for n := buckets[hash&uint64(len(buckets)-1)].Load(); n != nil; n = n.next.Load() {
		if n.hash == hash && n.key == key {
			return n.copy.Load()
		}
	}
	return nil
}

// put sets the copy of key. Called with the lock.
func (t *table) put(key string, c *Copy) {
	hash := t.hash(key)
	buckets := *t.buckets.Load()
	first := &buckets[hash&uint64(len(buckets)-1)]
	for n := first.Load(); n != nil; n = n.next.Load() {
		if n.hash == hash && n.key == key {
			n.copy.Store(c)
			return
		}
	}
	n := &node{hash: hash, key: key}
	n.copy.Store(c)
	n.next.Store(first.Load())
	first.Store(n)
	if t.count++; t.count > len(buckets) {
		t.grow(2 * len(buckets))
	}
}

func (t *table) remove(key string) {
	hash := t.hash(key)
	buckets := *t.buckets.Load()
	at := &buckets[hash&uint64(len(buckets)-1)]
	for n := at.Load(); n != nil; at, n = &n.next, n.next.Load() {
		if n.hash == hash && n.key == key {
			at.Store(n.next.Load())
			t.count--
			return
		}
	}
}

// grow moves everything into a larger array of new nodes, because goroutines may be walking
// the old ones. Called with the lock.
func (t *table) grow(size int) {
	old := *t.buckets.Load()
	buckets := make([]atomic.Pointer[node], size)
	for i := range old {
		for n := old[i].Load(); n != nil; n = n.next.Load() {
			moved := &node{hash: n.hash, key: n.key}
			moved.copy.Store(n.copy.Load())
			first := &buckets[n.hash&uint64(size-1)]
			moved.next.Store(first.Load())
			first.Store(moved)
		}
	}
	t.buckets.Store(&buckets)
}
