package localturns

import (
	"slices"
	"strings"
	"sync"

	"github.com/leasehold-go/leasehold/internal/protocol"
)

// desk is all that a process wants and holds of one key.
type desk struct {
	h   *Handle
	key string
	res protocol.Resource

	mu      deskLock // guards the fields below, the lines, and their turns and visits
	dropped bool     // the handle does not know it any more
	lines   []*line
	leases  int // that the lines' visits have
	kept    kept
}

// deskLock is the lock of a desk. Unlock does what may be done only once the lock is free: it ends
// Contexts. The package context calls the code of the caller's ctx, which may call the desk.
type deskLock struct {
	sync.Mutex
	later []func()
}

func (l *deskLock) Unlock() {
	later := l.later
	l.later = nil
	l.Mutex.Unlock()
	for _, f := range later {
		f()
	}
}

// lineName identifies a line of a desk. Requests with another number of permits, or with another
// limit, wait in another line.
type lineName struct {
	permits, limit int
}

// maxIdleDesks is how many desks may exist before idle ones are dropped, and maxIdleLines how many lines of a desk.
const (
	maxIdleDesks = 256
	maxIdleLines = 8
)

// lock returns the line of a request, and locks its desk. It fails if the key is not valid.
func (h *Handle) lock(key string, permits, limit int) (*line, error) {
	for {
		d, err := h.desk(key)
		if err != nil {
			return nil, err
		}
		d.mu.Lock()
		if !d.dropped {
			return d.line(lineName{permits, limit}), nil
		}
		d.mu.Unlock()
	}
}

// known returns the desk of a key; nil: there is none.
func (h *Handle) known(key string) *desk {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.desks[key]
}

func (h *Handle) desk(key string) (*desk, error) {
	if d := h.known(key); d != nil {
		return d, nil
	}
	res, err := h.m.Resource(key)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.desks[key]; d != nil {
		return d, nil
	}
	h.dropIdle()
	d := &desk{h: h, key: strings.Clone(key), res: res}
	h.desks[d.key] = d
	if h.cfg.KeepFor > 0 {
		h.named[res.FirstKey()] = d
	}
	return d, nil
}

// dropIdle drops a few idle desks if there are many. The handle is locked.
func (h *Handle) dropIdle() {
	if len(h.desks) < maxIdleDesks {
		return
	}
	looks := 8
	for key, d := range h.desks {
		if d.mu.TryLock() {
			if !slices.ContainsFunc(d.lines, (*line).busyNow) {
				d.dropped = true
				delete(h.desks, key)
				delete(h.named, d.res.FirstKey())
			}
			d.mu.Unlock()
		}
		if looks--; looks == 0 {
			return
		}
	}
}

// find returns a line of the desk; nil: there is none. The desk is locked.
func (d *desk) find(name lineName) *line {
	for _, ln := range d.lines {
		if ln.name == name {
			return ln
		}
	}
	return nil
}

// line is find that makes the line if there is none. The desk is locked.
func (d *desk) line(name lineName) *line {
	if ln := d.find(name); ln != nil {
		return ln
	}
	if len(d.lines) >= maxIdleLines {
		d.lines = slices.DeleteFunc(d.lines, func(ln *line) bool { return !ln.busyNow() })
	}
	ln := &line{desk: d, name: name, most: max(1, name.limit/name.permits)}
	d.lines = append(d.lines, ln)
	return ln
}

// maxIdle is how many leases of a handle rest at most.
const maxIdle = 1000

// shelf is the list of all visits of a handle that rest. Its lock is taken while a desk is locked,
// and not the other way round.
type shelf struct {
	mu             sync.Mutex
	oldest, newest *visit
	length         int
	trimming       bool
}

// add puts a visit at the end of the list. It reports whether the list has become too long, and trim is to be called.
func (s *shelf) add(v *visit) (trim bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.older = s.newest; v.older == nil {
		s.oldest = v
	} else {
		v.older.newer = v
	}
	s.newest = v
	s.length++
	trim = s.length > maxIdle && !s.trimming
	s.trimming = s.trimming || trim
	return trim
}

// remove takes a visit out of the list.
func (s *shelf) remove(v *visit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.older == nil {
		s.oldest = v.newer
	} else {
		v.older.newer = v.newer
	}
	if v.newer == nil {
		s.newest = v.older
	} else {
		v.newer.older = v.older
	}
	v.older, v.newer = nil, nil
	s.length--
}

// surplus returns the visit that has rested longest, if too many rest.
func (s *shelf) surplus() *visit {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.length <= maxIdle {
		s.trimming = false
		return nil
	}
	return s.oldest
}

// trim gives back what was used least recently, as long as too many visits rest.
func (s *shelf) trim() {
	for v := s.surplus(); v != nil; v = s.surplus() {
		d := v.line.desk
		d.mu.Lock()
		d.eachIdle(func(other *visit) bool { return other == v }) // unless it was used meanwhile
		d.mu.Unlock()
	}
}
