package near

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/keys"
)

type Config struct {
	For          time.Duration // how long a copy may be served after Redis confirmed it
	Bytes        int           // the memory of the cache
	StaleIfError time.Duration // how long after its TTL a copy may be served while Redis is away
	Schema       uint32        // of the values
	MaxValue     int           // bytes; a larger value is not kept
}

type Key struct {
	keys.Resource
	Name  string // as the caller passed it
	Value string // the name of the value in Redis
}

// A Cache is the reading side of a handle: its copies, their read leases, and what is under way
// about them. Find and FindStale take no lock.
type Cache struct {
	cfg    Config
	client *call.Client
	line   *Line
	born   time.Time // times of the cache are counted from here, by the monotonic clock
	copies store

	mu      sync.Mutex // guards the fields below, and those of slots, copies and watches that say so
	door    *door
	slots   map[string]*slot  // by Key.Name
	byNear  map[string]*slot  // by the Redis key of the registrations
	watches map[string]*watch // by Line.watched
	paused  map[string]int64  // until when no key of a server is registered, by server
	loose   map[string]int64  // registrations without a copy, and when they are over
	sweepAt int64             // when those that are over are looked for
	acks    map[string]*acks  // acknowledgements to be sent, by server
	closed  bool
	reading sync.WaitGroup // near reads under way
	acking  sync.WaitGroup // acknowledgements under way
}

// slot is a key with a copy or a near read under way. The lock of the cache guards it.
type slot struct {
	Key
	near    string   // the Redis key of the registrations
	copy    *Copy    // nil: none
	reading *reading // nil: none is under way
}

// reading is a near read under way. Whatever happens to the key meanwhile is noted here, so no
// times of the server are compared.
type reading struct {
	slot     *slot
	outdated bool   // the key was dropped meanwhile, so the reply must not be kept
	seen     string // the head of the value that calls got meanwhile; "": none; several
	known    string // the head of the copy when the near read was sent; "": there was none
}

// several is in reading.seen if calls got several values, or none: no head is like this.
const several = "several"

func NewCache(client *call.Client, line *Line, cfg Config) *Cache {
	c := &Cache{
		cfg: cfg, client: client, line: line, born: time.Now(),
		door:  newDoor(cfg.Bytes, cfg.For),
		slots: map[string]*slot{}, byNear: map[string]*slot{}, watches: map[string]*watch{},
		paused: map[string]int64{}, loose: map[string]int64{}, acks: map[string]*acks{},
	}
	c.copies = store{table: newTable(), most: cfg.Bytes}
	line.cache = c
	return c
}

func (c *Cache) now() int64 { return int64(time.Since(c.born)) }

// Find returns the copy of a key that may be served now, and the age of the value; nil: there
// is none. From 3/4 of the read lease on it starts to renew the lease, and does not wait.
//
// The mark is read after the time. So a copy that is returned was neither dropped nor over when
// the caller asked.
func (c *Cache) Find(key string) (*Copy, time.Duration) {
	found := c.copies.get(key)
	if found == nil {
		return nil, 0
	}
	now := c.now()
	if now >= found.until.Load() || found.dropped.Load() {
		return nil, 0
	}
	if !found.used.Load() {
		found.used.Store(true)
	}
	if now >= found.renewAt.Load() && !found.renewing.Load() {
		c.renew(found, now)
	}
	return found, found.age(now)
}

// FindStale returns the copy of a key that may be served because Redis cannot be asked, and the
// age of the value; nil: there is none.
func (c *Cache) FindStale(key string) (*Copy, time.Duration) {
	found := c.copies.get(key)
	if found == nil || found.dropped.Load() || found.Env.Kind != envelope.Value {
		return nil, 0
	}
	age := found.age(c.now())
	if c.cfg.StaleIfError == 0 || age-found.Env.Fresh >= c.cfg.StaleIfError {
		return nil, 0
	}
	return found, age
}

// Seen notes that a call read the value of a key with this head from Redis ("": there was
// none) and is about to return it. Any other value is outdated by it, so that no later hit is
// older. size is that of the stored value, and 0 if it may not be served. A key that was read
// often is registered.
func (c *Cache) Seen(k Key, head string, size int) {
	now, hash := c.now(), c.copies.hash(k.Name)
	c.mu.Lock()
	s := c.slots[k.Name]
	if s != nil {
		if s.copy != nil && s.copy.Head != head {
			c.remove(s.copy)
		}
		if r := s.reading; r != nil && (head == "" || r.seen != "" && r.seen != head) {
			r.seen = several
		} else if r != nil {
			r.seen = head
		}
		c.tidy(s)
	}
	var one *call.Call
	if size > 0 && c.copies.fits(sizeOf(k, size, c.client.IsCluster())) && c.door.knock(hash, now) {
		one = c.register(k, now)
	}
	c.mu.Unlock()
	if one != nil {
		c.client.Start(context.Background(), nil, one)
	}
}

// Outdate drops the copy of a key, and makes near reads under way useless: this process has
// changed the value, may have changed it, or is about to return a newer one.
func (c *Cache) Outdate(key string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.slots[key]; s != nil {
		c.outdate(s)
	}
}

// outdate is Outdate for a slot. The key has to be read a few times before it is registered
// again. Called with the lock.
func (c *Cache) outdate(s *slot) {
	if s.copy != nil {
		c.remove(s.copy)
	}
	if s.reading != nil {
		s.reading.outdated = true
	}
	c.door.forget(c.copies.hash(s.Name))
	c.tidy(s)
}

// remove takes a copy out. Its registration lasts until an invalidation or Close takes it back.
// Called with the lock.
func (c *Cache) remove(of *Copy) {
	c.noteLoose(of.slot.near, of.lease)
	c.copies.remove(of)
}

// tidy forgets a slot that holds nothing. Called with the lock.
func (c *Cache) tidy(s *slot) {
	if s.copy == nil && s.reading == nil && c.slots[s.Name] == s {
		delete(c.slots, s.Name)
		delete(c.byNear, s.near)
	}
}

// A watch keeps the subscription for one key, or on a single server for all keys, while a read
// lease may last. The lock of the cache guards it.
type watch struct {
	until         int64 // as a time of the cache
	subscriptions int   // how many of them have existed
	near          string
}

// watch makes the inbox listen for messages about a key until a time, and reports whether it
// listens already. Called with the lock.
func (c *Cache) watch(near string, now, until int64) (listens bool) {
	name := c.line.watched(near)
	w := c.watches[name]
	if w == nil {
		w = &watch{near: near, until: until}
		c.watches[name] = w
		if since := c.line.inbox.Watch(near); !since.IsZero() {
			w.subscriptions = 1 // it was opened for an earlier watch, or for an invalidation
		}
		time.AfterFunc(time.Duration(until-now), func() { c.unwatchIfOver(name, w) })
	}
	w.until = max(w.until, until)
	since := c.line.inbox.Watch(near)
	c.line.inbox.Unwatch(near)
	return !since.IsZero()
}

// unwatchIfOver ends a watch if no read lease lasts any more. Otherwise it looks again later.
func (c *Cache) unwatchIfOver(name string, w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches[name] != w {
		return // closed
	}
	now := c.now()
	if left := w.until - now; left > 0 {
		time.AfterFunc(time.Duration(left), func() { c.unwatchIfOver(name, w) })
		return
	}
	delete(c.watches, name)
	c.line.inbox.Unwatch(w.near)
	for _, s := range c.watchedBy(name) {
		if of := s.copy; of != nil && now >= of.until.Load() && now >= of.freshUntil()+int64(c.cfg.StaleIfError) {
			c.copies.remove(of)
			c.tidy(s)
		}
	}
}

// onSubscribed is told that messages are heard from now on. Earlier ones may have been missed,
// and a server that took over may have lost registrations. So the copies go, unless this is the
// first subscription: nothing was registered before it.
func (c *Cache) onSubscribed(watched string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.watches[watched]
	if w == nil {
		return
	}
	if w.subscriptions++; w.subscriptions == 1 {
		return
	}
	for _, s := range c.watchedBy(watched) {
		c.outdate(s)
	}
}

// watchedBy returns the slots that the watch of a name is for. Called with the lock.
func (c *Cache) watchedBy(name string) map[string]*slot {
	if name == "" {
		return c.slots
	}
	if s := c.byNear[name]; s != nil {
		return map[string]*slot{s.Name: s}
	}
	return nil
}
