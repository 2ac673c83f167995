package listing

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// Use is one line of a listing: how busy a resource is. State reads these figures entry by
// entry. For a Use the server counts them, which costs a few commands per resource. Waiters
// that died less than 5 s ago may be counted.
type Use struct {
	Resource
	InUse  int
	Limit  int  // see State.Limit
	Stored bool // see State.Stored

	Waiting     int
	LongestWait time.Duration // of the first live waiter in the queue
	ExpiresIn   time.Duration // of the lease that ends first if it is not renewed
	HeldFor     time.Duration // of the oldest lease, among the 200 that end first
	Overlong    bool          // one of them was renewed for more than ten times its TTL
	Keeps       bool          // the process of one of them keeps leases, so it may be idle
	Token       uint64
	Value       *Value        // of a cached value
	FailedFor   time.Duration // of a cached value
	Guarded     bool          // of a guard: there is a value
	Err         error         // why this resource could not be read
}

// Idle reports whether nothing is held, waited for or kept. Such a resource may still have a
// token, a stored limit, or expired entries.
func (u Use) Idle() bool {
	return u.InUse == 0 && u.Waiting == 0 && u.Value == nil && u.FailedFor == 0 && !u.Guarded && u.Err == nil
}

// oldest is how many leases of a resource are looked at for the oldest one.
const oldest = 200

// heads is how many entries of a queue are checked to find the first live waiter.
const heads = 10

type poll struct {
	used, alive   *redis.IntCmd
	holder, queue *redis.ZSliceCmd
	limit, fence  *redis.StringCmd
	guarded       *redis.DurationCmd
	cached        *stored
	signs         *redis.FloatSliceCmd
}

// Uses reads how busy each of the given resources is. For a family with a total it returns a
// line for the family, one for each tenant that has permits, waiters or a limit, and one for
// each other tenant that is asked for. So a caller that knows a tenant learns that it is idle.
func (l *Lister) Uses(ctx context.Context, all []Resource) ([]Use, error) {
	plain := make([]Resource, 0, len(all))
	totals := map[Resource][]string{} // the tenants that are asked for, by family
	for _, r := range all {
		if r.HasTotal {
			totals[r.one()] = append(totals[r.one()], r.Key)
		} else {
			plain = append(plain, r)
		}
	}
	uses, err := l.polled(ctx, plain)
	if err != nil {
		return nil, err
	}
	for r, tenants := range totals {
		s, err := l.State(ctx, r, Bounds{})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		uses = append(uses, s.tenants(tenants, err)...)
	}
	slices.SortFunc(uses, func(a, b Use) int { return Compare(a.Resource, b.Resource) })
	return uses, nil
}

func (l *Lister) polled(ctx context.Context, all []Resource) ([]Use, error) {
	clock, err := l.clocks(ctx, all)
	if err != nil {
		return nil, err
	}
	polls := make([]poll, len(all))
	err = l.pipelined(ctx, len(all), func(p redis.Pipeliner, i int) {
		polls[i] = ask(ctx, p, all[i], clock(all[i]))
	})
	if err != nil {
		return nil, err
	}
	// If a resource has a queue, check which of its first waiters are alive.
	var waited []int
	for i, p := range polls {
		if p.queue != nil && len(p.queue.Val()) > 0 {
			waited = append(waited, i)
		}
	}
	err = l.pipelined(ctx, len(waited), func(p redis.Pipeliner, i int) {
		q := &polls[waited[i]]
		q.signs = p.ZMScore(ctx, all[waited[i]].Part("alive"), membersOf(q.queue.Val())...)
	})
	if err != nil {
		return nil, err
	}
	uses := make([]Use, len(all))
	for i, r := range all {
		uses[i] = polls[i].use(r, clock(r))
	}
	return uses, nil
}

func ask(ctx context.Context, p redis.Pipeliner, r Resource, now time.Time) (q poll) {
	if r.Kind == keys.Guard {
		q.fence, q.guarded = p.Get(ctx, r.Part("seen")), p.PTTL(ctx, r.Part("value"))
		return q
	}
	after := "(" + strconv.FormatInt(now.UnixMilli(), 10)
	q.used = p.ZCount(ctx, r.Part("holders"), after, "+inf")
	q.holder = p.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: r.Part("holders"), Start: after, Stop: "+inf", ByScore: true, Count: oldest})
	q.queue = p.ZRangeWithScores(ctx, r.Part("queue"), 0, heads-1)
	q.alive = p.ZCount(ctx, r.Part("alive"), after, "+inf")
	if r.fenced() {
		q.fence = p.Get(ctx, r.Part("fence"))
	} else {
		q.limit = p.Get(ctx, r.Part("limit"))
	}
	if r.Kind == keys.Flight && !r.Whole {
		q.cached = askStored(ctx, p, r)
	}
	return q
}

func (q poll) use(r Resource, now time.Time) Use {
	u := Use{Resource: r}
	fail := func(err error) {
		if err != nil && err != redis.Nil && u.Err == nil {
			u.Err = err
		}
	}
	if q.fence != nil {
		fail(q.fence.Err())
		u.Token, _ = strconv.ParseUint(q.fence.Val(), 10, 64)
	}
	if q.guarded != nil {
		fail(q.guarded.Err())
		u.Guarded = q.guarded.Err() == nil && q.guarded.Val() != -2 // no such key
	}
	if q.used == nil {
		if q.fence.Err() == nil && q.fence.Val() == "" {
			fail(errNoReply)
		}
		return u
	}
	_, noHolders := replied(q.holder.Result())
	_, noQueue := replied(q.queue.Result())
	for _, err := range []error{q.used.Err(), noHolders, noQueue, q.alive.Err()} {
		fail(err)
	}
	u.InUse = int(q.used.Val())
	for i, z := range q.holder.Val() {
		if i == 0 {
			u.ExpiresIn = time.Duration(int64(math.Ceil(z.Score))-now.UnixMilli()) * time.Millisecond
		}
		u.held(z, now)
	}
	u.waits(q, now, fail)
	u.caps(q, fail)
	if q.cached != nil {
		fail(q.cached.head.Err())
		u.Value, u.FailedFor = q.cached.value(now), q.cached.failedFor()
	}
	return u
}

func (u *Use) held(z redis.Z, now time.Time) {
	if m, ok := memberOf(z, false); ok {
		s := State{Resource: u.Resource, At: now, Token: u.Token}
		u.heldBy(Holder{TTL: m.ttl, Holder: leasehold.Holder{Since: s.since(m, z.Score), Keeps: m.keeps}}, now)
	}
}

func (u *Use) heldBy(h Holder, now time.Time) {
	u.HeldFor = max(u.HeldFor, now.Sub(h.Since))
	u.Overlong = u.Overlong || h.Overlong(now)
	u.Keeps = u.Keeps || h.Keeps
}

// waits counts the waiters, and finds out how long the first live one has waited.
func (u *Use) waits(q poll, now time.Time, fail func(error)) {
	queue := q.queue.Val()
	if len(queue) == 0 {
		return
	}
	u.Waiting = int(q.alive.Val()) // this includes tombstones of requests that were given up
	living := 0
	signs, err := replied(q.signs.Result())
	fail(err)
	for i, sign := range signs {
		if i >= len(queue) || int64(sign) <= now.UnixMilli() {
			continue
		}
		if living++; living == 1 {
			u.LongestWait = waitingFor(now, queue[i].Score)
		}
	}
	if len(queue) < heads { // all waiters were checked
		u.Waiting = living
	}
}

func (u *Use) caps(q poll, fail func(error)) {
	if q.limit == nil {
		u.Limit = 1
		return
	}
	fail(q.limit.Err())
	u.Limit, _ = strconv.Atoi(q.limit.Val())
	if u.Stored = u.Limit > 0; u.Stored {
		return
	}
	for _, some := range [][]redis.Z{q.holder.Val(), q.queue.Val()} {
		for _, z := range some {
			if m, ok := memberOf(z, false); ok {
				u.Limit = m.limit
				return
			}
		}
	}
}

// asked takes the limit from a request, if none is stored.
func (u *Use) asked(limit int) {
	if !u.Stored {
		u.Limit = limit
	}
}

// tenants makes the lines of a family with a total. They include the tenants that are asked
// for. The tenant "" is the family itself.
func (s *State) tenants(asked []string, err error) []Use {
	if err == ErrTooMany {
		err = nil
	}
	family := Use{Resource: s.Resource, InUse: s.InUse, Limit: s.Total, Stored: s.Limits[""] > 0, Waiting: len(s.Waiters), Err: err}
	at := map[string]*Use{}
	tenant := func(key string) *Use {
		u := at[key]
		if u == nil {
			r := s.Resource
			r.Key = key
			u = &Use{Resource: r, Limit: s.Limits[key], Stored: s.Limits[key] > 0}
			at[key] = u
		}
		return u
	}
	for _, h := range s.Holders {
		u := tenant(h.Tenant)
		u.InUse += h.Permits
		u.asked(h.limit)
		for _, some := range []*Use{u, &family} {
			some.heldBy(h, s.At)
			if some.ExpiresIn == 0 || h.ExpiresIn < some.ExpiresIn {
				some.ExpiresIn = h.ExpiresIn
			}
		}
	}
	for _, w := range s.Waiters {
		u := tenant(w.Tenant)
		u.Waiting++
		u.asked(w.limit)
		u.LongestWait = max(u.LongestWait, w.WaitingFor)
		family.LongestWait = max(family.LongestWait, w.WaitingFor)
	}
	for key := range s.Limits {
		tenant(key)
	}
	for _, key := range asked {
		tenant(key).Err = err
	}
	delete(at, "")
	all := []Use{family}
	for _, u := range at {
		all = append(all, *u)
	}
	return all
}
