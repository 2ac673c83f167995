package listing

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// Holder is a lease. In a family with a total, it also has the tenant that holds the lease.
type Holder struct {
	leasehold.Holder
	Tenant string
	Aside  bool // an invalidated load that still runs
	TTL    time.Duration

	limit int // the limit that it was granted under
}

// Waiter is a request in a queue. In a family with a total, it also has its tenant. For a process
// that waits for a load, WaitingFor is how long the load has run: it has waited at most that long.
type Waiter struct {
	leasehold.Waiter
	Tenant string

	limit int // the limit that it waits under
}

type Value struct {
	Bytes     int
	Published time.Time
	FreshFor  time.Duration // negative if it is stale
	KeptFor   time.Duration // until it expires in Redis
	NotFound  bool          // it is a remembered ErrNotFound
	Known     bool          // its header could be read; else only Bytes and KeptFor are set
}

type State struct {
	Resource
	At     time.Time // the server's clock
	Limit  int       // the stored one, else that of the last holder's or waiter's request; 0: not known
	Stored bool      // Limit is the stored one
	Total  int       // in a family with a total; found in the same way as Limit
	// Configured and ConfiguredTotal are those of the last holder's or waiter's process, whatever
	// is stored; 0: not known.
	Configured, ConfiguredTotal int

	InUse int // permits
	// TotalInUse is the number of permits of all tenants if the resource is one tenant.
	// Otherwise it equals InUse.
	TotalInUse int
	Token      uint64   // the last fencing token; 0: none is known
	Holders    []Holder // oldest first
	Waiters    []Waiter // in the order of the queue
	Limits     map[string]int

	Value     *Value        // of a cached value; nil: there is none
	FailedFor time.Duration // how long a failure is still remembered; 0: there is none
	Near      int           // of a cached value: handles that may serve a copy from memory
}

type Bounds struct {
	Entries int // of the holders, and also of the queue; 0: a million
}

// State reads the state of one resource. If it stops at a bound, it returns what it has read
// and ErrTooMany.
func (l *Lister) State(ctx context.Context, r Resource, bounds Bounds) (State, error) {
	most := bounds.Entries
	if most <= 0 {
		most = 1_000_000
	}
	s := State{Resource: r}
	clock, err := l.clocks(ctx, []Resource{r})
	if err != nil {
		return s, err
	}
	s.At = clock(r)
	if r.Kind == keys.Guard {
		err = l.guard(ctx, &s)
	} else if err = l.leases(ctx, &s, most); err == nil && r.Kind == keys.Flight && !r.Whole {
		err = l.cached(ctx, &s)
	}
	return s, err
}

func (l *Lister) leases(ctx context.Context, s *State, most int) error {
	held, token, err := l.held(ctx, s, most)
	bounded := err == ErrTooMany
	if err != nil && !bounded {
		return err
	}
	queued, err := l.entries(ctx, s.Part("queue"), "-inf", most)
	bounded = bounded || err == ErrTooMany
	if err != nil && err != ErrTooMany {
		return err
	}
	living, err := l.living(ctx, s, queued)
	if err != nil {
		return err
	}
	if err := l.caps(ctx, s); err != nil {
		return err
	}
	// The clock is read again, so that entries that expired meanwhile are not shown.
	clock, err := l.clocks(ctx, []Resource{s.Resource})
	if err != nil {
		return err
	}
	s.At = clock(s.Resource)
	if err := l.renewed(ctx, s, held); err != nil {
		return err
	}
	s.Token = token
	s.holders(held)
	s.waiters(living)
	if bounded {
		return ErrTooMany
	}
	return nil
}

// fenced reports whether grants of the resource issue tokens.
func (r Resource) fenced() bool {
	return r.Kind == keys.Mutex || r.Kind == keys.Quorum || r.Kind == keys.Flight && !r.Whole
}

// held reads the holders, and the token of a lock or a load. The token belongs to the holder
// if the holder was the same before and after the token was read.
func (l *Lister) held(ctx context.Context, s *State, most int) (held []redis.Z, token uint64, err error) {
	from := "(" + strconv.FormatInt(s.At.UnixMilli(), 10)
	if !s.fenced() {
		held, err = l.entries(ctx, s.Part("holders"), from, most)
		return held, 0, err
	}
	for range 3 {
		var before, after *redis.ZSliceCmd
		var fence *redis.StringCmd
		arg := redis.ZRangeArgs{Key: s.Part("holders"), Start: from, Stop: "+inf", ByScore: true, Count: page}
		err = l.retry(ctx, func() error {
			pipe := l.primary(ctx, s.base).Pipeline()
			before, fence, after = pipe.ZRangeArgsWithScores(ctx, arg), pipe.Get(ctx, s.Part("fence")), pipe.ZRangeArgsWithScores(ctx, arg)
			_, err := pipe.Exec(ctx)
			if err == redis.Nil {
				err = nil
			}
			if err == nil && (before.Val() == nil || after.Val() == nil) {
				err = errNoReply
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		token, _ = strconv.ParseUint(fence.Val(), 10, 64)
		held = after.Val()
		if slices.EqualFunc(before.Val(), held, func(a, b redis.Z) bool { return a.Member == b.Member }) {
			break
		}
	}
	return held, token, nil
}

// renewed reads again the scores of those holders that have expired according to the first
// reading. A holder that was renewed meanwhile has been held all the time. A renewal never
// brings back an expired lease, so a score later than s.At proves that the lease was held at
// s.At.
func (l *Lister) renewed(ctx context.Context, s *State, held []redis.Z) error {
	var over []redis.Z
	var at []int // where they are in held
	for i, z := range held {
		if z.Score <= float64(s.At.UnixMilli()) {
			over, at = append(over, z), append(at, i)
		}
	}
	scores, err := l.scores(ctx, s.Part("holders"), over)
	for i, score := range scores {
		held[at[i]].Score = max(held[at[i]].Score, score)
	}
	return err
}

// scores reads the scores that the members of entries have in a sorted set. That of a missing one is 0.
func (l *Lister) scores(ctx context.Context, key string, entries []redis.Z) (all []float64, err error) {
	for part := range slices.Chunk(entries, page) {
		err = l.retry(ctx, func() error {
			some, err := replied(l.primary(ctx, key).ZMScore(ctx, key, membersOf(part)...).Result())
			if err == nil {
				all = append(all, some...)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// living returns the queued entries whose waiter has called in time.
func (l *Lister) living(ctx context.Context, s *State, queued []redis.Z) ([]redis.Z, error) {
	living := queued[:0]
	signs, err := l.scores(ctx, s.Part("alive"), queued)
	for i, sign := range signs {
		if int64(sign) > s.At.UnixMilli() {
			living = append(living, queued[i])
		}
	}
	return living, err
}

func (l *Lister) caps(ctx context.Context, s *State) error {
	switch {
	case s.fenced():
		s.Limit = 1
		return nil
	case s.HasTotal:
		return l.retry(ctx, func() error { return l.limits(ctx, s) })
	}
	text, err := l.text(ctx, s, "limit")
	s.Limit, _ = strconv.Atoi(text)
	s.Stored = s.Limit > 0
	return err
}

// limits reads the stored limits of a family with a total. For one tenant, it reads only the
// limits that concern it.
func (l *Lister) limits(ctx context.Context, s *State) (err error) {
	all := map[string]string{}
	if s.Key == "" {
		all, err = l.primary(ctx, s.base).HGetAll(ctx, s.Part("limits")).Result()
		if err == nil && all == nil {
			err = errNoReply
		}
	} else {
		names := []string{"", keys.Escape(s.Key)}
		var values []any
		values, err = replied(l.primary(ctx, s.base).HMGet(ctx, s.Part("limits"), names...).Result())
		for i, v := range values {
			all[names[i]], _ = v.(string)
		}
	}
	s.Limits = map[string]int{}
	for key, text := range all {
		n, _ := strconv.Atoi(text)
		if name, ok := keys.Unescape(key); ok && n > 0 {
			s.Limits[name] = n
		}
	}
	s.Total, s.Limit = s.Limits[""], s.Limits[s.Key]
	s.Stored = s.Limit > 0
	return err
}

// holders turns the entries of holders into leases. All entries of one request are one lease.
func (s *State) holders(held []redis.Z) {
	at := map[string]int{}
	now := s.At.UnixMilli()
	latest := int64(math.MinInt64)
	for _, z := range held {
		ends := int64(math.Ceil(z.Score))
		m, ok := memberOf(z, s.HasTotal)
		if !ok || ends <= now {
			continue
		}
		s.TotalInUse++
		if s.another(m) {
			continue
		}
		s.InUse++
		if i, more := at[m.first]; more {
			s.Holders[i].Permits++
			continue
		}
		at[m.first] = len(s.Holders)
		s.Holders = append(s.Holders, Holder{Tenant: m.tenant, TTL: m.ttl, limit: m.limit, Holder: leasehold.Holder{
			ID: m.id, Permits: 1, Label: m.label, Since: s.since(m, z.Score),
			ExpiresIn: time.Duration(ends-now) * time.Millisecond, Keeps: m.keeps,
		}})
		if ends > latest {
			s.asked(m)
			latest = ends
		}
	}
	slices.SortStableFunc(s.Holders, func(a, b Holder) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
}

// another reports whether an entry belongs to another tenant than the one asked for.
func (r Resource) another(m member) bool {
	return r.HasTotal && r.Key != "" && m.tenant != r.Key
}

func (s *State) waiters(living []redis.Z) {
	for _, z := range living {
		m, ok := memberOf(z, s.HasTotal)
		if !ok || s.another(m) {
			continue
		}
		s.Waiters = append(s.Waiters, Waiter{Tenant: m.tenant, limit: m.limit, Waiter: leasehold.Waiter{
			ID: m.id, Permits: m.permits, Label: m.label, Position: len(s.Waiters) + 1,
			WaitingFor: waitingFor(s.At, z.Score),
		}})
		if s.Configured == 0 {
			s.asked(m)
		}
	}
}

// asked takes limit and total from a request. What is stored stays in force.
func (s *State) asked(m member) {
	s.Configured, s.ConfiguredTotal = m.limit, m.total
	if !s.Stored && !s.fenced() && (!s.HasTotal || s.Key != "") {
		s.Limit = m.limit
	}
	if s.HasTotal && s.Limits[""] == 0 {
		s.Total = m.total
	}
}
