package near

import "time"

// registerAt is the number of reads within NearFor at which a key is registered. A registration
// costs the server about as much as five GETs.
const registerAt = 4

// A door counts the reads of keys that have no copy, so that only hot keys are registered. It
// is a small table that forgets. A set has two slots: with one, two keys of the same set that
// are read in turn would hide each other for ever. The lock of the cache guards it.
type door struct {
	sets   [][2]knocks
	window time.Duration
}

// knocks counts the reads of one key since a time.
type knocks struct {
	tag   uint32 // of the key's hash; 0: the slot is free
	count uint32
	since int64 // as a time of the cache
}

// newDoor makes a door whose size goes by the memory of the cache.
func newDoor(bytes int, window time.Duration) *door {
	const perSet = 32 // bytes
	sets := 16
	for sets < 8192 && 2*sets*perSet <= bytes/64 {
		sets *= 2
	}
	return &door{sets: make([][2]knocks, sets), window: window}
}

// find returns the slot of a key, or nil, and the set of the key.
func (d *door) find(hash uint64) (*knocks, *[2]knocks, uint32) {
	set := &d.sets[hash&uint64(len(d.sets)-1)]
	tag := uint32(hash>>32) | 1
	for i := range set {
		if set[i].tag == tag {
			return &set[i], set, tag
		}
	}
	return nil, set, tag
}

// knock counts a read, and reports whether the key is hot.
func (d *door) knock(hash uint64, now int64) bool {
	k, set, tag := d.find(hash)
	if k == nil {
		k = &set[0]
		if other := &set[1]; d.worth(other, now) < d.worth(k, now) {
			k = other
		}
		*k = knocks{tag: tag, since: now}
	}
	if now-k.since > int64(d.window) {
		k.count, k.since = 0, now
	}
	k.count++
	return k.count >= registerAt
}

// worth orders the slots of a set: the lower one is taken for another key.
func (d *door) worth(k *knocks, now int64) uint32 {
	if k.tag == 0 || now-k.since > int64(d.window) {
		return 0
	}
	return k.count
}

func (d *door) forget(hash uint64) {
	if k, _, _ := d.find(hash); k != nil {
		*k = knocks{}
	}
}
