package life

// Replicas in the world of the explorer. A call that they confirm is there after a failover, and so is all that ran
// before it. A later write may be lost.

type replicas struct {
	confirm    bool       // the handles want their leases confirmed
	stored     serverKeys // the state that the replicas surely have
	failedOver bool
}

func replicated(w *world) {
	w.confirm = true
	for i := range w.n {
		w.actors[i].Life = New(Options{TTL: worldTTL, Waits: true, Confirms: true})
	}
}

// confirms reports whether a call asks for confirmation.
func (f *flight) confirms() bool {
	return f.kind == enterCall || f.kind == renewCall || f.kind == keepCall || f.kind == leaveCall && f.stores
}

// replicate passes the server's state after the call f on to the replicas.
func (w *world) replicate(f *flight) {
	if w.confirm && f.confirms() && !f.few {
		w.stored = w.redis
	}
}

// confirmation reads from the answer to f whether replicas confirmed it.
func (w *world) confirmation(f *flight) (tooFew, confirmed bool) {
	if f.code != Granted && f.code != Held || f.kind == message {
		return false, false
	}
	return w.confirm && f.confirms() && f.few, f.confirms() && !f.few
}

func (w *world) deviationsOfReplicas(all []deviation) []deviation {
	if !w.confirm {
		return all
	}
	for i := range w.calls {
		if f := &w.calls[i]; f.confirms() && f.stage == request && !f.few {
			all = append(all, deviation{
				callNames[f.kind] + " of " + string(rune('A'+f.who)) + ": too few replicas confirm it",
				func(w *world) string { w.calls[i].few = true; return "" },
			})
		}
	}
	return append(all, deviation{"failover", func(w *world) string { w.failover(); return "" }})
}

// failover makes the replicas' state the server's. A revocation that they do not have is forgotten.
func (w *world) failover() {
	for i, revoked := range w.redis.revoked {
		if revoked && !w.stored.revoked[i] {
			w.actors[i].revokedInLine, w.flushed = false, true
		}
	}
	w.redis, w.failedOver = w.stored, true
}
