package life

import "fmt"

// Runs of a slot (mutex.DoOnce) in the world of the explorer. The life is the real one. What a
// caller does before and after the run is a model of mutex/once.go, and the slot is one of
// luascripts/permits/enter_once.lua, complete.lua and is_complete.lua.

// complete completes the slot if the attempt holds the lease and nobody has completed it. It
// reports whether a copy of the same call did that before.
func (r *serverKeys) complete(i int8) (repeated bool) {
	switch {
	case r.slot == i+1:
		return true
	case r.slot != 0:
		r.expiry[i] = 0
	case r.expiry[i] != 0:
		r.slot = i + 1
	}
	return false
}

// runner is what the caller of one run knows.
type runner struct {
	once   bool // it wants one run of the slot
	looked bool // the grant came in the reply to its enter, which looked at the slot
	atWork bool
	errs   bool // the run ended with an error
}

// running makes all attempts want a run of the slot.
func running(w *world) {
	for i := range w.n {
		w.actors[i].once = true
	}
}

// begins makes a caller use its lease.
func (w *world) begins(i int8) string {
	a := &w.actors[i]
	a.caller, a.until, a.atWork = holds, w.now+a.lasts, a.once
	if a.revokedInLine && !w.flushed {
		return fmt.Sprintf("S4: %c was revoked while it waited, and has a lease", 'A'+i)
	}
	if a.atWork && w.redis.slot != 0 && w.now < a.Deadline && !a.revokd && !w.flushed {
		return fmt.Sprintf("O1: %c runs a slot that is complete", 'A'+i)
	}
	return ""
}

// learnsOfSlot makes the caller run, or give back. Without an answer it gives back.
func (w *world) learnsOfSlot(f flight) string {
	a := &w.actors[f.who]
	if a.caller != looks {
		return ""
	}
	if f.code == Gone {
		return w.begins(f.who)
	}
	a.GiveBack(ByHolder, w.now)
	a.caller = gone
	return ""
}

// judgeRuns checks what holds of the slot in every state.
func (w *world) judgeRuns() string {
	for i := range w.n {
		a := &w.actors[i]
		if !a.Complete || a.caller != gone || w.flushed {
			continue
		}
		switch by := w.redis.slot == i+1; {
		case a.result == TellDone && !by:
			return fmt.Sprintf("O3: the caller of %c was told that the slot is complete", 'A'+i)
		case by && (a.result == TellLost || a.result == TellRevoked):
			return fmt.Sprintf("O3: the caller of %c was told that its run did not count, and the slot is complete", 'A'+i)
		}
	}
	return ""
}
