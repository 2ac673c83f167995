package near

import (
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/envelope"
)

// A Copy is a cached value in the memory of this process. Hits use it without a lock.
type Copy struct {
	Env  envelope.Envelope
	Head string // tells this publication from others
	// Refreshing is set by the first call that refreshes the value early because of this copy.
	Refreshing atomic.Bool

	slot      *slot
	published int64 // as a time of the cache
	size      int

	dropped  atomic.Bool  // it must not be served any more
	until    atomic.Int64 // until when it may be served, as a time of the cache
	renewAt  atomic.Int64 // from when on a hit renews the read lease
	renewing atomic.Bool  // a renewal is under way
	used     atomic.Bool  // since the hand of the store passed it
	lease    int64        // the end of the read lease; guarded by the lock of the cache

	next, prev *Copy // in the ring of the store
}

// overhead is what a copy takes besides its texts: the Copy, its slot, and its nodes in the table and the maps. On a
// Cluster inCluster comes to it: a watch and a channel.
const (
	overhead  = 480
	inCluster = 480
)

// sizeOf returns what a copy takes of memory if its stored value has n bytes. Go's allocator
// rounds small sizes up by an eighth, more or less, and those above 32 KiB to whole pages.
//
// The names are the key's own, its label, and those of the value, of the registrations and of what both begin with;
// on a Cluster also that of the channel, and once more that of the registrations. None of them is longer than the value's
// by more than a few bytes. Escaping may make them three times as long as the key.
func sizeOf(k Key, n int, isCluster bool) int {
	const large, page = 32 << 10, 8 << 10
	if n > large {
		n = (n + page - 1) / page * page
	} else {
		n += n / 8
	}
	names := len(k.Name) + 3*len(k.Value)
	n += overhead
	if isCluster {
		names += 2 * len(k.Value)
		n += inCluster
	}
	return n + names + names/8
}

// A store holds copies within a number of bytes. If there is no room, the hand goes round and
// takes the first copy that was not used since it came by the last time (second chance). The
// lock of the cache guards it; hits read its table.
type store struct {
	*table
	most, bytes int
	hand        *Copy // nil: the store is empty
}

// add puts a copy in, in place of one with the same key, and takes out others if there is no
// room. It reports each copy that it takes out.
func (s *store) add(c *Copy, out func(*Copy)) {
	if old := c.slot.copy; old != nil {
		s.remove(old)
	}
	c.slot.copy = c
	if s.hand == nil {
		c.next, c.prev = c, c
		s.hand = c
	} else { // behind the hand, so that it comes there last
		c.next, c.prev = s.hand, s.hand.prev
		c.prev.next, c.next.prev = c, c
	}
	s.bytes += c.size
	s.put(c.slot.Name, c)
	for s.bytes > s.most {
		switch victim := s.hand; {
		case victim == c || victim.used.Swap(false):
			s.hand = victim.next
		default:
			s.remove(victim)
			out(victim)
		}
	}
}

// fits reports whether a copy of that size may be kept at all. One copy must not push out all
// others.
func (s *store) fits(size int) bool { return size <= s.most/4 }

// remove takes a copy out. It is marked first: a call may have found it already.
func (s *store) remove(c *Copy) {
	c.dropped.Store(true)
	s.table.remove(c.slot.Name)
	c.slot.copy = nil
	s.bytes -= c.size
	if s.hand == c {
		s.hand = c.next
	}
	if s.hand == c {
		s.hand = nil
		return
	}
	c.prev.next, c.next.prev = c.next, c.prev
	c.next, c.prev = nil, nil
}

func (c *Copy) age(now int64) time.Duration { return time.Duration(now - c.published) }

// freshUntil returns when the TTL of the value is over, as a time of the cache.
func (c *Copy) freshUntil() int64 { return c.published + int64(c.Env.Fresh) }
