package lease

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// Replicas: if a Config asks for them, a grant counts only after that many of the primary's
// replicas have confirmed it, and only a confirmed renewal moves the deadline. The enter and
// the renewals of such a handle ask for the confirmation themselves (call.Confirm). A grant
// that arrived in another way, by a message or in the reply to another call, has no
// confirmation: an own renewal has it confirmed before Acquire returns.

// confirm checks Replicas and ReplicaWait and returns the Confirm for the handle's calls, which
// is zero without replicas. client is nil if the Config has no valid client.
func (c Config) confirm(client *call.Client) (none call.Confirm, errs []error) {
	if c.Replicas < 0 {
		errs = append(errs, keys.Bad("Replicas", "is %d; want 0 (none) or more", c.Replicas))
	}
	term := max(MinTTL, c.TTL)
	if c.MaxHold > 0 {
		term = TermWithin(term, c.MaxHold)
	}
	longest, of := term/4, "a quarter of the TTL"
	if c.MaxHold > 0 {
		of += ", or of MaxHold"
	}
	// How long the client waits for an answer matters only if there are replicas.
	if client != nil && c.Replicas > 0 && client.LongestWait() < longest {
		longest, of = client.LongestWait(), "three quarters of the client's ReadTimeout"
	}
	if c.ReplicaWait != 0 && (c.ReplicaWait < time.Millisecond || c.ReplicaWait > longest) {
		errs = append(errs, keys.Bad("ReplicaWait", "is %v; want 1ms to %v (%s), or 0 for %v or less",
			c.ReplicaWait, longest, of, DefaultReplicaWait))
	}
	if len(errs) > 0 || c.Replicas == 0 {
		return none, errs
	}
	wait := c.ReplicaWait
	if wait == 0 {
		wait = max(time.Millisecond, min(DefaultReplicaWait, longest))
	}
	return call.Confirm{Replicas: c.Replicas, Wait: wait, TTL: term}, nil
}

// replicated reports whether replicas must confirm the grants of the handle.
func (m *Manager) replicated() bool { return m.confirm != call.Confirm{} }
