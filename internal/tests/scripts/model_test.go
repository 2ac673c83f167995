package scripts_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The references of the model tests: what the scripts have to do, in plain Go, on plain maps. They are compared with
// the scripts after each call, so they say also what is kept until when.

// cell is one key of Redis: a sorted set, a hash, a stream, or a string. It is there as long as it
// holds something and its time has not come.
type cell struct {
	name     string
	key      string             // its name in Redis, where a reference needs it
	scores   map[string]float64 // of a sorted set; nil = it is none
	fields   map[string]string  // of a hash; nil = it is none
	entries  []string           // of a stream: see auditEntry
	isStream bool
	text     string
	set      bool  // of a string: it is there
	until    int64 // immortal: it has no expiry
	clock    bool  // its scores are times (ms)
	exact    bool  // its scores have fractions, which count
}

func sortedSet(name string, clock bool) *cell {
	return &cell{name: name, scores: map[string]float64{}, clock: clock}
}

func (c *cell) exists() bool {
	return c.set || len(c.scores) > 0 || len(c.fields) > 0 || len(c.entries) > 0
}

func (c *cell) clear() {
	clear(c.scores)
	clear(c.fields)
	c.entries = nil
	c.text, c.set, c.until = "", false, 0
}

func (c *cell) drop(members ...string) (n int) {
	for _, m := range members {
		if _, ok := c.scores[m]; ok {
			delete(c.scores, m)
			n++
		}
	}
	if !c.exists() {
		c.clear()
	}
	return n
}

// at is a score in whole numbers, 0 where there is none.
func (c *cell) at(m string) int64 { return int64(c.scores[m]) }

func (c *cell) put(m string, score int64) { c.scores[m] = float64(score) }

// keep makes what is there live until at, and never shorter than it did.
func (c *cell) keep(at int64) {
	if c.exists() {
		c.until = max(c.until, at)
	}
}

// expire makes what is there live until at.
func (c *cell) expire(at int64) {
	if c.exists() {
		c.until = at
	}
}

func (c *cell) has(m string) bool { _, ok := c.scores[m]; return ok }

// order is the members by score, where that lies between from and to.
func (c *cell) order(from, to int64) []string { return c.between(float64(from), float64(to)) }

func (c *cell) between(from, to float64) []string {
	var all []string
	for m, s := range c.scores {
		if s >= from && s <= to {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(c.scores[a], c.scores[b]), strings.Compare(a, b))
	})
	return all
}

// of is the members of a key of a family with a total, in their order.
func (c *cell) of(key string) []string {
	var all []string
	for m := range c.scores {
		if strings.HasPrefix(m, key+":") {
			all = append(all, m)
		}
	}
	slices.Sort(all)
	return all
}

// first is the member with the lowest score after now, and that; "" = none.
func (c *cell) first(now int64) (string, int64) {
	if all := c.order(now+1, forever); len(all) > 0 {
		return all[0], c.at(all[0])
	}
	return "", 0
}

const forever = 1 << 62

// immortal is how Redis says that a key has no expiry.
const immortal = int64(-1)

// String is how the key is compared.
func (c *cell) String() string {
	switch {
	case !c.exists():
		return "-"
	case c.fields != nil || c.isStream:
		return fmt.Sprintf("%v %q until %d", c.fields, c.entries, c.until)
	case c.scores == nil:
		return fmt.Sprintf("%q until %d", c.text, c.until)
	}
	var b strings.Builder
	for _, m := range c.order(-forever, forever) {
		fmt.Fprintf(&b, "%s=%.17g ", m, c.scores[m])
	}
	return fmt.Sprintf("%suntil %d", &b, c.until)
}

// base is what the references have in common: the keys, the clock, and what a call answers beside its reply.
type base struct {
	cells              []*cell
	held, queue, alive *cell
	revocations
	us   int64 // the server's clock
	now  int64 // the same in ms
	sent []string
	own  string  // the handle of the caller
	told []int64 // what the reply says of the caller's other waiters
	c    constants
}

type constants struct{ probation, alive, overdue, silence, few, batch, parked, fence, record, tombstone, markKept, recalled, coming, keeper int64 }

// begin starts a call: keys whose time has come are gone.
func (b *base) begin(us int64, gone func(until, now int64) bool) {
	b.us, b.now, b.sent, b.told = us, us/1000, nil, nil
	for _, c := range b.cells {
		if c.exists() && c.until != immortal && gone(c.until, b.now) {
			c.clear()
		}
	}
}

// put stores a string for so many ms.
func (b *base) put(c *cell, text string, ms int64) { c.text, c.set, c.until = text, true, b.now+ms }

// publish tells a handle.
func (b *base) publish(handle, text string) { b.sent = append(b.sent, handle+": "+text) }

// tell says in the reply, or by a message, what became of a waiter.
func (b *base) tell(t terms, what, token int64) {
	if t.handle == b.own {
		b.told = append(b.told, t.seq, what, token)
		return
	}
	b.publish(t.handle, fmt.Sprintf("%d %d %d %d", t.seq, b.us, what, token))
}

// inUse is how many permits are held.
func (b *base) inUse() int { return len(b.held.order(b.now+1, forever)) }

// forget drops the waiters that gave no sign of life.
func (b *base) forget() { b.unqueue(b.alive.order(-forever, b.now)...) }

func (b *base) unqueue(members ...string) {
	b.queue.drop(members...)
	b.alive.drop(members...)
}

// bury leaves a tombstone, which refuses an enter that comes after its leave.
func (b *base) bury(member string, until int64) {
	if until > b.now {
		b.alive.put(member, until)
		b.alive.keep(until)
	}
}

// lives makes what tells of the waiters last as long as a sign of life.
func (b *base) lives() {
	b.queue.keep(b.now + b.c.alive)
	b.alive.keep(b.now + b.c.alive)
}

// times are the moments (ms) at which something changes by itself.
func (b *base) times() []int64 {
	var all []int64
	for _, c := range b.cells {
		if c.exists() && c.until != immortal && c.fields == nil && !c.isStream { // these last for a month
			all = append(all, c.until)
		}
		for _, s := range c.scores {
			if c.clock {
				all = append(all, int64(s), int64(s)-b.c.overdue)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// left is how long a lease lasts.
func (b *base) left(member string) int64 { return max(0, b.held.at(member)-b.now) }

// earliest is when the next lease ends.
func (b *base) earliest() int64 {
	if m, ends := b.held.first(b.now); m != "" {
		return ends - b.now
	}
	return 0
}

// renew is a renewal of permits.
func (b *base) renew(member string, ttl int64) []int64 {
	left := b.left(member)
	if left == 0 || ttl <= left {
		return []int64{left}
	}
	b.held.keep(b.now + ttl)
	for _, m := range parseTerms(member).memberPermits {
		if b.held.has(m) {
			b.held.put(m, max(b.held.at(m), b.now+ttl))
		}
	}
	return []int64{ttl}
}

// terms are what a request asks for, as its member tells them.
type terms struct {
	handle        string
	seq           int64
	permits       int
	ttl           int64
	limit         int
	member        string
	memberPermits []string

	// In a family with a total:
	key   string
	share float64
	total int
}

func parseTerms(member string) terms {
	key, owner := keyAndOwner(member)
	words := append(strings.Split(owner, "."), make([]string, 6)...)
	number := func(i int) int { n, _ := strconv.Atoi(words[i]); return n }
	t := terms{
		handle: words[0], seq: int64(number(1)), permits: number(2), ttl: int64(number(3)), limit: number(4), member: member,
		memberPermits: []string{member}, key: key, share: float64(number(5)), total: number(6),
	}
	for i := 2; i <= t.permits; i++ {
		t.memberPermits = append(t.memberPermits, fmt.Sprintf("%s+%d", member, i))
	}
	return t
}

// keyAndOwner are the parts of a member; the key is of a family with a total.
func keyAndOwner(member string) (key, owner string) {
	if key, owner, ok := strings.Cut(member, ":"); ok {
		return key, owner
	}
	return "", member
}
