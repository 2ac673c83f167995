package simulation

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// held is a semaphore's lease, or a mutex's.
type held interface {
	Context() context.Context
	Deadline() time.Time
	Extend(ctx context.Context, ttl time.Duration) error
	ID() string
}

// belief is what a client believes to hold, as long as it does.
type belief struct {
	client  *client
	lease   held
	kind    string // sem, mtx, or tot: of a family with a total
	key     string
	permits int
	token   uint64
	asked   time.Time // when its Acquire was called
	from    time.Time
	enterAt time.Time // since when the lease may have been asked for: see enterSince
	orphan  time.Time // when its keys were lost, through FLUSHALL; zero = they were not
	unsure  bool      // they were, or it was granted after that, or it was revoked
	alone   bool      // it is no turn, and its ID is not known: of a DoOnce, or one of several
	resumed bool      // it is a turn on a lease that an earlier turn was seen to have
	// unusedSince is since when its client had not used the key when it was asked for; zero: it
	// did so at that moment.
	unusedSince time.Time
	askedInUse  bool // somebody used the key when it was asked for, or just before
	call        int  // that it was asked for by: see ledger.calls
	waits       bool // a call that waits, and does not try
	together    bool // with others: it may hold the key while it waits for another
}

// ledger is what the fleet believes to hold, and what it waits for.
type ledger struct {
	beliefs map[*belief]struct{}
	waiting map[*belief]struct{} // what is asked for by calls under way
	last    map[string]*belief   // the latest holder of each mutex
	used    map[string]time.Time // when somebody last wanted, held or gave back, by kind and key
	flushes []time.Time          // when FLUSHALL was sent
	enterAt map[string]time.Time // of leases that serve turns, by ID: see enterSince
	firstAt map[string]time.Time // when the first turn was seen to begin on them, by ID
	usedBy  map[string]time.Time // as used, by label, kind and key
	calls   map[string]int       // how often somebody has begun to want it, by kind and key

	asked    map[string]bool        // by label, kind, key and permits
	returned map[string]time.Time   // when an Acquire returned without a lease, by label, kind and key
	revokes  int                    // calls of Revoke so far
	revoking string                 // the ID that a call of revoke is about to take away
	revoked  map[string]*revocation // by ID
	reasons  map[string]*revocation // by reason
	untold   []*revocation          // that are watched yet
}

func newLedger() ledger {
	return ledger{
		beliefs: map[*belief]struct{}{}, waiting: map[*belief]struct{}{},
		last: map[string]*belief{}, used: map[string]time.Time{}, enterAt: map[string]time.Time{},
		firstAt: map[string]time.Time{}, usedBy: map[string]time.Time{}, calls: map[string]int{},
		asked: map[string]bool{}, returned: map[string]time.Time{},
		revoked: map[string]*revocation{}, reasons: map[string]*revocation{},
	}
}

// died ends what a dead client believed.
func (l *ledger) died(c *client) {
	for _, all := range []map[*belief]struct{}{l.beliefs, l.waiting} {
		for b := range all {
			if b.client == c {
				delete(all, b)
				l.used[b.kind+b.key] = time.Now()
			}
		}
	}
}

func (l *ledger) flushed(now time.Time) {
	l.flushes = append(l.flushes, now)
	for b := range l.beliefs {
		if !b.unsure {
			b.orphan, b.unsure = now, true
		}
	}
}

// counts is since when the lease of b counts: a turn may be on a lease that its process
// was granted up to LocalFor before, or that an earlier call has asked for.
func (b *belief) counts() time.Time {
	since := b.asked.Add(-b.client.local)
	if b.enterAt.Before(since) {
		return b.enterAt
	}
	return since
}

// enterSince is since when the enter of a lease that b gets may have been sent: since b was
// asked for, or in turns since an earlier call of the process was, which was under way
// together with it. The limit then was another one, perhaps. The world's lock is held.
func (l *ledger) enterSince(b *belief) time.Time {
	since := b.asked
	for o := range l.waiting {
		if b.turns() && o.client == b.client && o.kind == b.kind && o.key == b.key && o.enterAt.Before(since) {
			since = o.enterAt
		}
	}
	return since
}

// turnOf notes that b is a turn on its lease, which may have been asked for before b was. The world's lock is held.
func (l *ledger) turnOf(b *belief) {
	if !b.turns() {
		return
	}
	if first, ok := l.enterAt[b.lease.ID()]; ok && first.Before(b.enterAt) {
		b.enterAt = first
	}
	l.enterAt[b.lease.ID()] = b.enterAt
	if _, b.resumed = l.firstAt[b.lease.ID()]; !b.resumed {
		l.firstAt[b.lease.ID()] = b.from
	}
}

// asks notes that b is asked for. The world's lock is held.
func (l *ledger) asks(b *belief) {
	b.enterAt = l.enterSince(b)
	b.unusedSince = l.unusedSince(b)
	b.askedInUse = l.usedNow(nil, b.kind, b.key) || b.asked.Sub(l.used[b.kind+b.key]) < time.Second/2
	l.calls[b.kind+b.key]++
	b.call = l.calls[b.kind+b.key]
	l.uses(b.client, b.kind, b.key, b.asked)
}

// unusedSince is since when the client of b has not used its key; zero: it does so now. The world's lock is held.
func (l *ledger) unusedSince(b *belief) time.Time {
	if l.usedNow(b.client, b.kind, b.key) {
		return time.Time{}
	}
	return l.usedBy[b.client.label+b.kind+b.key]
}

// usedNow reports whether a client, or any if it is nil, wants or holds a key.
func (l *ledger) usedNow(c *client, kind, key string) bool {
	for _, all := range []map[*belief]struct{}{l.beliefs, l.waiting} {
		for o := range all {
			if (c == nil || o.client == c) && o.kind == kind && o.key == key {
				return true
			}
		}
	}
	return false
}

// uses notes that a client wants a key, holds it, or has given it back. The world's lock is held.
func (l *ledger) uses(c *client, kind, key string, now time.Time) {
	l.used[kind+key], l.usedBy[c.label+kind+key] = now, now
}

// flushedSince reports a FLUSHALL.
func (l *ledger) flushedSince(t time.Time) bool {
	return slices.ContainsFunc(l.flushes, func(f time.Time) bool { return !f.Before(t) })
}

// limitAt is the lowest and the highest limit of a key at any moment from one time to another.
func (w *world) limitAt(kind, key string, from, to time.Time) (least, most int) {
	if kind == "mtx" {
		return 1, 1
	}
	return w.judge.limits.between(key, from, to)
}

// judge looks at the stored limits of the family with a total before and after every script
// call, so that it knows which are in force, and at every key before and after a call of
// revoke. Scripts run one at a time, as on a real server.
type judge struct {
	w       *world
	script  sync.Mutex // held while one runs
	running atomic.Pointer[server.Peer]
	limits  history
}

func newJudge(w *world) *judge {
	j := &judge{w: w, limits: history{settings: map[*setting]struct{}{}, values: map[string][]value{}}}
	redistest.WantErr(w.tb, w.direct.Ping(context.Background()).Err()) // the server begins with its first connection
	w.mini.Server().SetPreHook(j.run)
	return j
}

// run is called by the server before each command, and runs those that are judged.
func (j *judge) run(c *server.Peer, cmd string, args ...string) (done bool) {
	scripted := (cmd == "EVALSHA" || cmd == "EVAL") && len(args) > 2
	if !scripted && cmd != "FLUSHALL" || j.running.Load() == c {
		return false
	}
	j.script.Lock()
	defer j.script.Unlock()
	dispatch := func() {
		j.running.Store(c)
		j.w.mini.Server().Dispatch(c, append([]string{cmd}, args...))
		j.running.Store(nil)
	}
	if r, ok := parseRevoke(args); ok && scripted {
		run, before := dispatch, j.w.standing(r.kind, r.key)
		dispatch = func() {
			j.w.mu.Lock()
			j.w.leases.revoking = r.id
			j.w.mu.Unlock()
			run()
			j.revoked(r, before, j.w.standing(r.kind, r.key))
		}
	}
	if scripted {
		for _, name := range doneOf(args) {
			run := dispatch
			before, _ := j.w.mini.Get(name)
			dispatch = func() { run(); j.completes(name, before) }
		}
	}
	if scripted && args[2] != redisKey("tot", "", "holders") {
		dispatch()
		return true
	}
	before := j.stored()
	dispatch()
	j.limits.changes(before, j.stored())
	return true
}

// stored are the limits set at run time, by key; "" is the total.
func (j *judge) stored() map[string]int {
	all := map[string]int{}
	limits := redisKey("tot", "", "limits")
	keys, _ := j.w.mini.HKeys(limits) // an error: there are none
	for _, key := range keys {
		all[key], _ = strconv.Atoi(j.w.mini.HGet(limits, key))
	}
	return all
}
