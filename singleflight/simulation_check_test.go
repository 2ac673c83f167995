package singleflight_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/singleflight"
)

func (s *simulation) noted(what string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, leasehold.ErrUnavailable):
		what += ": unavailable"
	case errors.Is(err, context.DeadlineExceeded):
		what += ": ctx ended"
	case strings.Contains(err.Error(), errSim.Error()):
		what += ": failed"
	default:
		s.Errorf("%s: %v", what, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcome[what]++
}

func (s *simulation) dropped(d simDrop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drops = append(s.drops, d)
}

func (s *simulation) read(key string, began time.Time, value string, from singleflight.Source) {
	n, err := strconv.Atoi(strings.TrimRight(value, "."))
	if err != nil {
		s.Errorf("read %q", value[:min(len(value), 20)])
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, simRead{key, began, n, from})
}

// check looks at everything that happened: no read that began after an Invalidate
// returned is of a load that began before it was called, and no load began while
// another one of its key ran on, unless something was dropped in between, or
// everybody had left the older one: then its lease is free before it is told so.
func (s *simulation) check() {
	for _, r := range s.reads {
		l := s.loads[r.load]
		if l.key != r.key {
			s.Errorf("a read of %s gave a value of %s", r.key, l.key)
		}
		for _, d := range s.drops {
			if d.key == r.key && !d.done.IsZero() && r.began.After(d.done) && l.began.Before(d.called) {
				s.Errorf("%s: a read that began at %v saw (%v) load %d, begun at %v, invalidated from %v to %v",
					r.key, r.began, r.from, r.load, l.began, d.called, d.done)
			}
		}
	}
	for i, a := range s.loads {
		for j, b := range s.loads {
			if i == j || a.key != b.key || b.began.Before(a.began) || !b.began.Before(a.to) || s.droppedBetween(a, b) {
				continue
			}
			if a.many || !s.waitedFor(a, b.began) {
				continue
			}
			s.Errorf("%s: load %d began at %v while load %d ran (of several keys: %v), from %v to %v",
				a.key, j, b.began, i, a.many, a.began, a.to)
		}
	}
}

// waitedFor reports whether some call of its group was there from before the load
// until then. A caller who comes after the others left starts a flight of its own.
func (s *simulation) waitedFor(a simLoad, then time.Time) bool {
	for _, c := range s.calls {
		if c.group == a.group && c.key == a.key && c.from.Before(a.began) && !c.to.Before(then) {
			return true
		}
	}
	return false
}

func (s *simulation) droppedBetween(a, b simLoad) bool {
	for _, d := range s.drops {
		// A drop whose reply was lost may still have come much later; and a lease
		// is granted up to its length before its load begins.
		late := d.done
		if late.IsZero() {
			late = d.called.Add(10 * time.Second)
		}
		if (d.key == "" || d.key == a.key) && !d.called.After(b.began) && late.After(a.began.Add(-simLeaseTTL)) {
			return true
		}
	}
	return false
}
