// Package revoke takes a lease or a place in the queue away from its owner.
package revoke

import (
	"context"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/protocol"
)

const (
	// longest bounds the duration of one Revoke.
	longest = 10 * time.Second
	// patience is how long a call without an answer is repeated.
	patience = 3 * time.Second
	// maxCalls bounds how often one Revoke continues after a call that stopped at a bound.
	maxCalls = 1000
)

// Revoke takes the lease or the place of id in a handle's family away. find looks up its member.
func Revoke(ctx context.Context, m *lease.Manager, key, id, reason string, find func(context.Context, protocol.Resource) (protocol.Resource, string, error)) error {
	const op = "revoke"
	if _, err := m.Resource(key); err != nil {
		return m.Reject(op, key, err)
	}
	if why := badReason(reason); why != "" {
		return m.Reject(op, key, keys.Invalid("reason %s; want 1 to %d printable bytes", why, call.MaxReason))
	}
	if !isListedID(id) {
		return m.Reject(op, key, leasehold.ErrNoLease)
	}
	return m.Run(ctx, op, key, longest, func(ctx context.Context, res protocol.Resource) error {
		target, member, err := find(ctx, res)
		if err != nil {
			return err
		}
		for range maxCalls {
			state, more, err := send(ctx, m, func() *call.Call { return target.Revoke(member, id, reason) })
			switch {
			case err != nil:
				return err
			case state == 0:
				return leasehold.ErrNoLease
			case !more:
				return nil
			}
		}
		return nil
	})
}

// send sends calls made by prepare until one is answered. A repeated call finds the mark of an
// earlier one.
func send(ctx context.Context, m *lease.Manager, prepare func() *call.Call) (state int64, more bool, err error) {
	began := time.Now()
	for n := 1; ; n++ {
		v, err := m.Do(ctx, prepare())
		if err == nil {
			if len(v) != 3 {
				return 0, false, call.Malformed("revoke", v)
			}
			return v[0], v[2] == 1, nil
		}
		pause := call.Backoff(n)
		if call.Classify(err) == call.Refused || ctx.Err() != nil || time.Since(began)+pause > patience {
			return 0, false, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, false, err
		}
	}
}

// badReason returns what is wrong with reason, or "".
func badReason(reason string) string {
	switch {
	case reason == "":
		return "is empty"
	case len(reason) > call.MaxReason:
		return "has " + strconv.Itoa(len(reason)) + " bytes"
	case reason != call.CleanReason(reason):
		return "has bytes that cannot be printed"
	}
	return ""
}

// isListedID reports whether text has the form of an id in a listing.
func isListedID(text string) bool {
	if len(text) < 10 || len(text) > 29 || text[8] != '-' {
		return false
	}
	for i := range 8 {
		c := text[i]
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	_, err := strconv.ParseUint(text[9:], 10, 64)
	return err == nil
}
