package near

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/loads"
)

const (
	// drift is the part of NearFor by which a copy is given up before its registration ends: the
	// clocks of this process and of the server may run at rates that differ by 2.5 %.
	drift = 40
	// renewAfter is the part of NearFor after which a hit renews the read lease, in quarters.
	renewAfter = 3
	// mostLoose bounds how many registrations without a copy are remembered for Close. Each may
	// take perLoose bytes of the cache's memory.
	mostLoose = 1024
	perLoose  = 8 << 10
)

// register prepares a near read, unless one of the key is under way or there would be no point
// in it. Called with the lock; the caller sends the call without it.
//
// A reader registers only while it listens. Otherwise an invalidation would wait for its lease
// in vain.
func (c *Cache) register(k Key, now int64) *call.Call {
	near := loads.Near(k.Resource)
	if c.closed || !c.watch(near, now, now+int64(c.cfg.For)) || c.client.Away(k.Value) || now < c.paused[c.client.Node(k.Value)] {
		return nil
	}
	s := c.slots[k.Name]
	if s == nil {
		k.Name = strings.Clone(k.Name) // it may be a part of a much longer text of the caller
		s = &slot{Key: k, near: near}
		c.slots[k.Name], c.byNear[near] = s, s
	}
	if s.reading != nil {
		return nil
	}
	r := &reading{slot: s}
	if s.copy != nil {
		r.known = s.copy.Head
	}
	s.reading = r
	c.reading.Add(1)
	one := loads.NearRead(k.Value, near, c.line.handle, c.cfg.For, r.known)
	one.Done = func(v []int64, err error) { c.onRead(r, one, v, err) }
	return one
}

// renew starts to renew the read lease of a copy. It does not wait.
func (c *Cache) renew(of *Copy, now int64) {
	if !of.renewing.CompareAndSwap(false, true) {
		return
	}
	c.mu.Lock()
	var one *call.Call
	if s := of.slot; s.copy == of {
		if one = c.register(s.Key, now); one == nil && s.reading == nil {
			c.tryLater(of, now)
		}
	}
	c.mu.Unlock()
	if one != nil {
		c.client.Start(context.Background(), nil, one)
	}
}

// tryLater lets a hit renew the lease again, a little later. Called with the lock.
func (c *Cache) tryLater(of *Copy, now int64) {
	of.renewAt.Store(now + int64(c.cfg.For)/16)
	of.renewing.Store(false)
}

// onRead handles the outcome of a near read.
//
// Between its sending and now the value may have been invalidated, changed, or read by a call;
// each of these has marked r. The lease counts from before the sending, because the server's
// time of the registration is not known, and is later than that.
func (c *Cache) onRead(r *reading, one *call.Call, v []int64, err error) {
	defer c.reading.Done()
	var reply loads.NearValue
	if err == nil {
		reply, err = loads.ReadNearRead(v, one.Text)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, now := r.slot, c.now()
	s.reading = nil
	defer c.tidy(s)
	if old := s.copy; old != nil {
		defer c.tryLaterIfKept(old, now)
	}
	sent := one.Sent.Sub(c.born)
	lease := int64(sent + c.cfg.For - c.cfg.For/drift)
	switch {
	case err != nil: // no copy is dropped because of it
		c.pause(s, now)
		if call.Classify(err) == call.Unknown {
			c.noteLoose(s.near, now+int64(c.cfg.For))
		}
	case r.outdated || c.closed:
		c.noteLoose(s.near, lease)
	case !reply.Found:
		if s.copy != nil {
			c.remove(s.copy)
		}
	case reply.Same:
		if s.copy != nil && s.copy.Head == r.known && (r.seen == "" || r.seen == r.known) {
			c.extend(s.copy, sent, lease)
		} else {
			c.noteLoose(s.near, lease)
		}
	default:
		c.keep(r, reply, sent, lease)
		if !reply.Registered {
			c.pause(s, now)
		}
	}
}

// tryLaterIfKept ends the renewal of a copy that is still there. Called with the lock.
func (c *Cache) tryLaterIfKept(of *Copy, now int64) {
	if of.slot.copy == of && of.renewing.Load() {
		if now >= of.renewAt.Load() {
			c.tryLater(of, now)
		} else {
			of.renewing.Store(false)
		}
	}
}

// pause keeps the keys of a server from being registered for a while, because the server
// refused, or did not answer. Called with the lock.
func (c *Cache) pause(s *slot, now int64) {
	c.paused[c.client.Node(s.Value)] = now + int64(min(c.cfg.For, time.Second))
}

// noteLoose remembers, for Close, a registration without a copy. Called with the lock.
func (c *Cache) noteLoose(near string, until int64) {
	most := min(mostLoose, c.cfg.Bytes/perLoose)
	if now := c.now(); len(c.loose) >= most && now >= c.sweepAt {
		maps.DeleteFunc(c.loose, func(_ string, over int64) bool { return now >= over })
		c.sweepAt = now + int64(c.cfg.For)/16
	}
	if len(c.loose) < most {
		c.loose[near] = max(c.loose[near], until)
	}
}

// keep keeps a value that a near read brought, in place of the copy. It is served only if the
// reader was registered. A value that differs from what calls got meanwhile is not kept, as it
// may be the older one. Called with the lock.
func (c *Cache) keep(r *reading, reply loads.NearValue, sent time.Duration, lease int64) {
	s, text := r.slot, reply.Text
	head := envelope.Head(text)
	if s.copy != nil && s.copy.Head != head {
		c.remove(s.copy)
	}
	env, err := envelope.Decode(text)
	size := sizeOf(s.Key, len(text), c.client.IsCluster())
	switch {
	case err != nil || env.Schema != c.cfg.Schema || len(env.Payload) > c.cfg.MaxValue,
		env.Kind != envelope.Value && env.Kind != envelope.NotFound,
		!reply.Registered, r.seen != "" && r.seen != head, !c.copies.fits(size):
		if reply.Registered {
			c.noteLoose(s.near, lease)
		}
		return
	}
	age := max(0, time.Duration(reply.At-env.Published)*time.Microsecond)
	made := &Copy{Env: env, slot: s, Head: head, published: int64(sent - age), size: size}
	c.extend(made, sent, lease)
	c.copies.add(made, func(out *Copy) {
		c.noteLoose(out.slot.near, out.lease)
		c.tidy(out.slot)
	})
	c.door.forget(c.copies.hash(s.Name))
}

// extend sets until when a copy may be served: until the end of its read lease or of its TTL.
// Called with the lock.
func (c *Cache) extend(of *Copy, sent time.Duration, lease int64) {
	of.lease = max(of.lease, lease)
	of.until.Store(min(of.lease, of.freshUntil()))
	of.renewAt.Store(int64(sent) + renewAfter*int64(c.cfg.For)/4)
	of.renewing.Store(false)
	near := c.line.watched(of.slot.near)
	if w := c.watches[near]; w != nil {
		w.until = max(w.until, of.lease)
	}
}
