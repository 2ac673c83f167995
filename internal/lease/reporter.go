package lease

import "github.com/leasehold-go/leasehold"

// A Reporter passes events to an Observer, as a Manager does, for what has no Manager. The nil
// Reporter passes none.
type Reporter struct {
	courier     courier[leasehold.Event]
	typ, family string
}

// NewReporter returns nil if there is no Observer.
func NewReporter(typ, family string, to leasehold.Observer) *Reporter {
	if to == nil {
		return nil
	}
	nobody := func(int, any) {} // there is no Logger that could be told
	return &Reporter{courier: courier[leasehold.Event]{hand: to.Observe, trouble: nobody}, typ: typ, family: family}
}

// Observe adds type and family to an event, passes it on, and waits for a moment until the
// Observer has it. Its caller must hold no lock.
func (r *Reporter) Observe(e leasehold.Event) {
	if r != nil {
		e.Type, e.Family = r.typ, r.family
		r.courier.wait(r.courier.put(e))
	}
}
