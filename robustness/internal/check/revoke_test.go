package check

import (
	"testing"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// lockID is a lock that was got, with its ID.
func (s *story) lockID(worker string, from, to int64, token uint64, id string) int {
	return s.op(worker, from, to, history.Event{Op: history.Lock, Key: "m0"},
		history.Event{Token: token, Lease: id, Deadline: (to + 900) * ms})
}

// revoke is a Revoke; it returns its reason.
func (s *story) revoke(worker string, from, to int64, key, id, class string) (reason string) {
	op := s.op(worker, from, to, history.Event{Op: history.Revoke, Key: key, Lease: id}, history.Event{Class: class})
	return "lease revoked: " + history.Reason(worker, op)
}

// told is a lease whose Context ended by itself, with the reason.
func (s *story) told(worker string, lease int, at int64, why string) {
	s.events = append(s.events, history.Event{Kind: history.Ended, Worker: worker, ID: lease, At: at * ms, Deadline: (at + 900) * ms, Text: why})
}

func (s *story) inspect(from, to int64, key string, shown map[string]int) {
	s.op("w3", from, to, history.Event{Op: history.Inspect, Key: key}, history.Event{Shown: shown})
}

// What was revoked counts for nothing from the call of Revoke on; the next may hold then,
// and not before.
func TestRevokedLockCountsUntilItsRevoke(t *testing.T) {
	for _, x := range []struct {
		granted int64
		broken  []string
	}{{105, nil}, {99, []string{"model", "cap"}}} {
		s := newStory(t)
		a := s.lockID("w1", 0, 1, 1, "a")
		why := s.revoke("w3", 100, 110, "m0", "a", history.OK)
		s.told("w1", a, 120, why)
		s.unlock("w1", a, 130, 131)
		b := s.lockID("w2", 90, x.granted, 2, "b")
		s.unlock("w2", b, 200, 201)
		s.is(x.broken...)
	}
}

// A turn that begins on a lease that was revoked may have an older token.
func TestTurnAfterARevokePromisesNothing(t *testing.T) {
	s := newStory(t)
	a := s.lockID("w1", 0, 1, 1, "a")
	s.unlock("w1", a, 10, 11)
	s.revoke("w3", 20, 21, "m0", "a", history.OK)
	b := s.lockID("w2", 15, 22, 9, "b")
	c := s.lockID("w1", 30, 31, 2, "a")
	s.unlock("w1", c, 40, 41)
	s.unlock("w2", b, 50, 51)
	s.is()
}

// Nobody is told of a revocation but the one that a Revoke named.
func TestRevocationIsOfWhatWasNamed(t *testing.T) {
	for _, x := range []struct {
		what, key, id, class string
		why                  string // "": that of the Revoke
		rules                []string
	}{
		{what: "as it should be", key: "m0", id: "a"},
		{what: "another lease", key: "m0", id: "x", rules: []string{"revoked"}},
		{what: "another key", key: "m1", id: "a", rules: []string{"revoked"}},
		{what: "no such lease", key: "m0", id: "a", class: history.NoLease, rules: []string{"revoked"}},
		{what: "a reason of nobody", key: "m0", id: "a", why: "lease revoked: I say so", rules: []string{"revoked"}},
	} {
		t.Run(x.what, func(t *testing.T) {
			s := newStory(t)
			a := s.lockID("w1", 0, 1, 1, "a")
			why := s.revoke("w3", 100, 110, x.key, x.id, x.class)
			if x.why != "" {
				why = x.why
			}
			s.told("w1", a, 120, why)
			s.unlock("w1", a, 130, 131)
			s.is(x.rules...)
		})
	}
}

// A holder that believes for longer than a TTL after the Revoke has returned was not told.
func TestRevokedHolderIsTold(t *testing.T) {
	for _, x := range []struct {
		until int64
		rules []string
	}{{1100, nil}, {1200, []string{"told"}}} {
		s := newStory(t)
		a := s.lockID("w1", 0, 1, 1, "a")
		s.revoke("w3", 100, 110, "m0", "a", history.OK)
		s.op("w1", x.until, x.until+1, history.Event{Op: history.Unlock, Key: "m0", For: a, Deadline: (x.until + 900) * ms}, history.Event{})
		s.is(x.rules...)
	}
}

// A listing shows what is held during all of the call, and nothing that was revoked.
func TestListings(t *testing.T) {
	for _, x := range []struct {
		what  string
		at    int64
		shown map[string]int
		rules []string
	}{
		{"held", 50, map[string]int{"a": 1}, nil},
		{"held, and not shown", 50, nil, []string{"listing"}},
		{"held, with other permits", 50, map[string]int{"a": 2}, []string{"listing"}},
		{"being revoked", 95, nil, nil},
		{"revoked", 115, nil, nil},
		{"revoked, and shown", 115, map[string]int{"a": 1}, []string{"listing"}},
	} {
		t.Run(x.what, func(t *testing.T) {
			s := newStory(t)
			a := s.lockID("w1", 0, 1, 1, "a")
			s.inspect(x.at, x.at+10, "m0", x.shown)
			why := s.revoke("w3", 100, 110, "m0", "a", history.OK)
			s.told("w1", a, 140, why)
			s.unlock("w1", a, 150, 151)
			s.is(x.rules...)
		})
	}
}

// The next load may begin before the loader of a revoked one is told; what that returns
// after it goes to its own process.
func TestRevokedLoads(t *testing.T) {
	for _, x := range []struct {
		reader string
		class  string // of the Revoke
		rules  []string
	}{{"w1", history.OK, nil}, {"w2", history.OK, []string{"revoked"}}, {"w1", history.NoLease, []string{"revoked", "builds"}}} {
		s := newStory(t)
		a := s.read("w1", 0, 200, "")
		l := s.load("w1", a, 1, 190)
		why := s.revoke("w3", 100, 110, "c0", "a", x.class)
		s.told("w1", l, 180, why)
		b := s.read("w2", 50, 300, "")
		s.load("w2", b, 112, 290)
		s.read(x.reader, 150, 210, "w1.2")
		s.is(x.rules...)
	}
}
