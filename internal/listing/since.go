package listing

import (
	"context"
	"math"
	"slices"
	"time"
)

// overlong is how many of its TTLs a lease may be held before a listing points at it: one that
// is renewed for so long may hang.
const overlong = 10

// Overlong reports whether the lease has been renewed for more than ten times its TTL. A lease of a
// process that keeps leases is no such one: it may have served many callers.
func (h Holder) Overlong(now time.Time) bool {
	return h.TTL > 0 && !h.Keeps && now.Sub(h.Since)/overlong > h.TTL
}

// since returns the time since which a lease has been held.
//
// A lock and a load have a token. It is the server's time of the grant in µs, unless the
// server's clock has gone back since. A permit has no token. The fraction of its score says
// how long before its expiry it was granted, to within 0.2 %. If there is no fraction, that
// time is its TTL.
func (s *State) since(m member, score float64) time.Time {
	ends := math.Ceil(score)
	before := m.ttl
	if part := math.Round((score - math.Floor(score)) * 4096); part > 0 {
		before = time.Duration(math.Expm1(part*0.004) * float64(time.Second)) // as luascripts/permits/shared/held_since.lua
	}
	at := time.UnixMilli(int64(ends)).Add(-before)
	if s.fenced() && s.Token > 0 && s.Token < 1<<53 {
		at = time.UnixMicro(int64(s.Token))
	}
	if at.After(s.At) {
		return s.At
	}
	return at
}

const (
	fewest     = 5   // keys of a family that are held, or it is not known what is usual
	usualMost  = 200 // keys that UsualOf reads
	usualBound = 300 * time.Millisecond
)

// Usual tells for how long the leases of a family are usually held: nine in ten of its keys that
// are held now, by a holder that does not seem to hang nor keeps leases for several callers, have
// been held for no longer. 0: too few are held.
func Usual(uses []Use) func(Resource) time.Duration {
	held := map[Resource][]time.Duration{}
	for _, u := range uses {
		if u.HeldFor > 0 && !u.Overlong && !u.Keeps && u.Key != "" {
			held[u.family()] = append(held[u.family()], u.HeldFor)
		}
	}
	for _, all := range held {
		slices.Sort(all)
	}
	return func(r Resource) time.Duration {
		all := held[r.family()]
		if len(all) < fewest {
			return 0
		}
		return all[(len(all)-1)*9/10]
	}
}

// UsualOf is Usual for one resource. It looks for the keys of the family among all of the server;
// 0 if that takes too long or the user may not.
func (l *Lister) UsualOf(ctx context.Context, r Resource) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, usualBound)
	defer cancel()
	all, err := l.Resources(ctx)
	if err != nil {
		return 0
	}
	all = slices.DeleteFunc(all, func(other Resource) bool { return other.family() != r.family() })
	uses, err := l.Uses(ctx, all[:min(len(all), usualMost)])
	if err != nil {
		return 0
	}
	return Usual(uses)(r)
}

func (r Resource) family() Resource {
	return Resource{Kind: r.Kind, Family: r.Family, HasTotal: r.HasTotal}
}
