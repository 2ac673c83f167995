package simulation

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// overdue is what is left of a waiter's sign of life (4.5 s) when its turn is given to
// those behind it.
const overdue = 2500 * time.Millisecond

// family is a family with a total as it stands on the server.
type family struct {
	held   map[string]float64 // permits → expiry, unexpired ones
	queue  map[string]float64 // waiters → ticket
	alive  map[string]float64 // waiters → until when they count as alive
	stored map[string]int     // limits set at run time, by key; "" = the total
}

// judge looks at the family with a total before and after every script call, so that
// it knows by which limits each grant was made, and at every key before and after a call
// of revoke. Scripts run one at a time, as on a real server.
type judge struct {
	w       *world
	script  sync.Mutex // held while one runs
	running atomic.Pointer[server.Peer]
	limits  history
}

func newJudge(w *world) *judge {
	j := &judge{w: w, limits: history{settings: map[*setting]struct{}{}, values: map[string][]value{}}}
	w.must(w.direct.Ping(context.Background()).Err()) // the server begins with its first connection
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
			j.announce(r)
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
	before := j.look()
	dispatch()
	after := j.look()
	if scripted {
		j.grants(before, after)
	}
	j.changes(before.stored, after.stored, !scripted)
	return true
}

func (j *judge) look() family {
	f := family{
		held:   j.w.set(redisKey("tot", "", "holders"), time.Now().UnixMilli()),
		queue:  j.w.set(redisKey("tot", "", "queue"), 0),
		alive:  j.w.set(redisKey("tot", "", "alive"), 0),
		stored: map[string]int{},
	}
	limits := redisKey("tot", "", "limits")
	keys, _ := j.w.mini.HKeys(limits) // an error: there are none
	for _, key := range keys {
		f.stored[key], _ = strconv.Atoi(j.w.mini.HGet(limits, key))
	}
	return f
}

// request is a request for permits of a family with a total, as its member says it.
type request struct {
	member             string
	key                string
	permits            int
	ownLimit, ownTotal int // by its own process
	limitNow, totalNow int // in force
}

func parseRequest(member string, stored map[string]int) request {
	member, _, _ = strings.Cut(member, "+")
	key, rest, _ := strings.Cut(member, ":")
	q := request{member: member, key: key}
	words := strings.Split(rest, ".") // handle, seq, permits, ttl, limit, share, total
	if len(words) != 7 {
		return q
	}
	q.permits, _ = strconv.Atoi(words[2])
	q.ownLimit, _ = strconv.Atoi(words[4])
	q.ownTotal, _ = strconv.Atoi(words[6])
	q.limitNow, q.totalNow = q.ownLimit, q.ownTotal
	if n, ok := stored[key]; ok {
		q.limitNow = n
	}
	if n, ok := stored[""]; ok {
		q.totalNow = n
	}
	return q
}

// grants judges what a call granted: no more than the limits in force (S1), all permits
// of a request or none, and none to a request behind which another of its key has
// waited for longer.
func (j *judge) grants(before, after family) {
	w := j.w
	granted := map[string]request{}
	inUse, permitsOf := 0, map[string]int{}
	ofKey := map[string]int{}
	for permit := range after.held {
		q := parseRequest(permit, after.stored)
		if _, held := before.held[permit]; !held {
			granted[q.member] = q
			permitsOf[q.member]++
			continue
		}
		inUse++
		ofKey[q.key]++
	}
	// Requests of processes with other limits: the stricter ones came first, if any
	// order keeps to all of them.
	inOrder := slices.SortedFunc(maps.Values(granted), func(a, b request) int {
		return cmp.Or(a.totalNow-b.totalNow, a.limitNow-b.limitNow, strings.Compare(a.member, b.member))
	})
	for _, q := range inOrder {
		inUse += permitsOf[q.member]
		ofKey[q.key] += permitsOf[q.member]
		switch {
		case permitsOf[q.member] != q.permits:
			w.fail("S1", "tot %s: %d of %d permits were granted", q.member, permitsOf[q.member], q.permits)
		case inUse > q.totalNow:
			w.fail("S1", "tot %s was granted with %d permits in use, the total is %d", q.member, inUse, q.totalNow)
		case ofKey[q.key] > q.limitNow:
			w.fail("S1", "tot %s was granted with %d permits of its key in use, the limit is %d", q.member, ofKey[q.key], q.limitNow)
		}
		w.note("granted of a total")
		j.inOrderOfArrival(q, before, after)
	}
}

// inOrderOfArrival judges whether a grant passed a waiter of the same key by that came
// before it, and is alive.
func (j *judge) inOrderOfArrival(q request, before, after family) {
	ticket, wasQueued := before.queue[q.member]
	signed := float64(time.Now().Add(overdue).UnixMilli())
	for other, earlier := range after.queue {
		if !strings.HasPrefix(other, q.key+":") || wasQueued && earlier >= ticket {
			continue
		}
		if _, queued := before.queue[other]; queued && before.alive[other] > signed && after.alive[other] > signed {
			j.w.fail("fifo", "tot %s was granted, and %s has waited for longer", q.member, other)
		}
	}
}
