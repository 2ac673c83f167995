package leasehold_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

func TestSentinels(t *testing.T) {
	revoked := fmt.Errorf("hold: %w", &leasehold.RevokedError{Reason: "maintenance"})
	for err, sentinel := range map[error]error{
		leasehold.ErrRevoked: leasehold.ErrRevoked, leasehold.ErrMaxHold: leasehold.ErrMaxHold, revoked: leasehold.ErrRevoked,
	} {
		wrapped := fmt.Errorf("hold: %w", err)
		redistest.WantErr(t, wrapped, sentinel, leasehold.ErrLost)
		other := map[error]error{leasehold.ErrRevoked: leasehold.ErrMaxHold, leasehold.ErrMaxHold: leasehold.ErrRevoked}[sentinel]
		redistest.Check(t, !errors.Is(wrapped, other) && !errors.Is(fmt.Errorf("hold: %w", leasehold.ErrLost), sentinel), "%v must match itself and ErrLost alone", err)
	}
	var why *leasehold.RevokedError
	redistest.Check(t, errors.As(revoked, &why) && why.Reason == "maintenance", "%v must have its reason", revoked)
	redistest.Expect(t, revoked.Error(), "hold: lease revoked: maintenance", "it says %q")
	err := fmt.Errorf("acquire: %w", &leasehold.BusyError{InUse: 2, Limit: 3, Waiting: 1})
	var busy *leasehold.BusyError
	redistest.Check(t, errors.Is(err, leasehold.ErrBusy) && errors.As(err, &busy) && busy.Limit == 3,
		"%v must be an ErrBusy that tells how busy", err)
	redistest.Expect(t, err.Error(), "acquire: busy (2 of 3 in use, 1 waiting)", "it says %q")
}

// The sentinels are distinct: a switch over them takes one branch.
func TestSentinelsAreDistinct(t *testing.T) {
	all := []error{
		leasehold.ErrBusy, leasehold.ErrLost, leasehold.ErrReleased, leasehold.ErrClosed, leasehold.ErrQueueFull,
		leasehold.ErrUnavailable, leasehold.ErrFenced, leasehold.ErrInvalid, leasehold.ErrNoLease,
	}
	for i, a := range all {
		for j, b := range all {
			redistest.Check(t, errors.Is(a, b) == (i == j), "errors.Is(%q, %q) is %v", a, b, errors.Is(a, b))
		}
	}
}

// What a user prints has a name.
func TestNamesOfConstants(t *testing.T) {
	seen := map[string]bool{}
	for k := leasehold.EventAcquired; k <= leasehold.EventAvailable; k++ {
		name := k.String()
		redistest.Check(t, !seen[name] && !strings.Contains(name, "("), "kind %d is called %q", int(k), name)
		seen[name] = true
	}
	for k, want := range map[leasehold.EventKind]string{
		0: "EventKind(0)", leasehold.EventAvailable + 1: "EventKind(16)",
		leasehold.EventGuardRefused: "guard_refused", leasehold.EventInvalidated: "invalidated", leasehold.EventAvailable: "available",
	} {
		redistest.Expect(t, k.String(), want, "kind %d is called %q", int(k))
	}
	got := fmt.Sprint(singleflight.Fail, singleflight.LoadLocally, singleflight.Policy(7))
	redistest.Check(t, got == "fail load locally Policy(7)", "the policies are called %s", got)
}
