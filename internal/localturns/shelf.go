package localturns

import "sync"

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
