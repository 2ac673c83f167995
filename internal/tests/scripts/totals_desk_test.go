package scripts_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/luascripts"
)

// desk calls the scripts for one handle and keeps account of what it holds and what
// waits. Each enter and leave brings the sign of life of its waiters where it is due.
type desk struct {
	*testing.T
	rdb      redis.UniversalClient
	names    []string
	handle   string
	total    int
	seq      int
	waiting  map[int64]asked
	held     []asked
	granted  []asked   // in their order
	more     bool      // goOn has more to do
	sign     time.Time // when the last sign of life was brought
	embedded bool
	random   *rand.Rand
}

// asked is a request.
type asked struct {
	key     string
	permits int
	limit   int
	share   int
	seq     int64
	member  string
}

func newDesk(t *testing.T, target redistest.Target, total int) *desk {
	return &desk{T: t, rdb: target.Client(t), names: totalNames(redistest.Name(t)), handle: hereHandle, total: total, waiting: map[int64]asked{}, embedded: target.Mini != nil, random: rand.New(rand.NewPCG(redistest.Seed(t), 1))}
}

// totalNames are the keys of a family.
func totalNames(name string) (all []string) {
	r := keys.Family{Kind: keys.Semaphore, Name: name}.Together()
	for _, part := range parts {
		all = append(all, r.Part(part))
	}
	return all
}

// other is another handle at the same family.
func (d *desk) other() *desk {
	return &desk{T: d.T, rdb: d.rdb, names: d.names, handle: thereHandle, total: d.total, waiting: map[int64]asked{}, random: d.random}
}

func (d *desk) run(script string, args ...any) []int64 {
	d.Helper()
	names := d.names
	if script == "renew" {
		names = names[:2]
	}
	v, err := scripts[script].Run(context.Background(), d.rdb, names, args...).Int64Slice()
	redistest.CheckNow(d, err == nil, "%s %v: %v", script, args, err)
	return v
}

// hear takes the outcomes of waiters.
func (d *desk) hear(v []int64) {
	for ; len(v) >= 3; v = v[3:] {
		a, ok := d.waiting[v[0]]
		if !ok {
			d.Fatalf("an outcome of %d, which does not wait: %v", v[0], v)
		}
		delete(d.waiting, v[0])
		if v[1] > 0 {
			d.held, d.granted = append(d.held, a), append(d.granted, a)
		}
	}
}

var scripts = map[string]*redis.Script{
	"enter": redis.NewScript(luascripts.TotalsEnter()), "leave": redis.NewScript(luascripts.TotalsLeave()),
	"ask": redis.NewScript(luascripts.TotalsAsk()), "renew": redis.NewScript(luascripts.TotalsRenew()),
	"set": redis.NewScript(luascripts.TotalsSetLimit()), "revoke": redis.NewScript(luascripts.TotalsRevoke()),
}

const deskTTL = 600_000

// enter asks for permits and reports whether they were granted at once.
func (d *desk) enter(key string, permits, limit, share int) bool {
	d.Helper()
	d.live()
	d.seq++
	a := asked{key: key, permits: permits, limit: limit, share: share, seq: int64(d.seq)}
	a.member = fmt.Sprintf("%s:%s.%d.%d.%d.%d.%d.%d", key, d.handle, d.seq, permits, deskTTL, limit, share, d.total)
	v := d.run("enter", a.member, permits, deskTTL, limit, d.total, 0, "0 0 0")
	switch v[0] {
	case 1:
		d.held, d.granted = append(d.held, a), append(d.granted, a)
		d.hear(v[4:])
		return true
	case 2:
		d.waiting[a.seq] = a
		d.hear(v[11:])
		return false
	}
	d.Fatalf("enter answered %v", v)
	return false
}

// leave gives back the i-th of what is held.
func (d *desk) leave(i int) {
	d.Helper()
	a := d.held[i]
	d.held[i] = d.held[len(d.held)-1]
	d.held = d.held[:len(d.held)-1]
	d.live()
	v := d.run("leave", a.member, a.permits, 0)
	redistest.CheckNow(d, v[0] == 1, "leave %s answered %v", a.member, v)
	if len(v) > 3 {
		d.hear(v[3:])
	}
}

// live brings the sign of life of all that wait where it is due.
func (d *desk) live() {
	if len(d.waiting) > 0 && time.Since(d.sign) > time.Second {
		d.ask()
	}
}

// ask brings the sign of life of all that wait.
func (d *desk) ask() {
	d.Helper()
	d.sign = time.Now()
	var all []any
	for _, a := range d.waiting {
		all = append(all, a.member)
	}
	for len(all) > 0 {
		n := min(250, len(all))
		v := d.run("ask", append([]any{d.handle, d.total}, all[:n]...)...)
		d.hear(v[6+5*n:])
		all = all[n:]
	}
}

// goOn goes on where the last call stopped at its bound.
func (d *desk) goOn() {
	d.Helper()
	v := d.run("ask", d.handle, d.total)
	d.more = v[2] == 1
	d.hear(v[6:])
}

func (d *desk) set(key string, limit int) {
	d.Helper()
	v := d.run("set", key, limit, d.handle, redistest.Must(d.rdb.Time(d.Context()).Result())(d).UnixMicro(), d.total)
	redistest.CheckNow(d, v[0] == 1, "set answered %v", v)
	d.more = v[2] == 1
	d.hear(v[3:])
}

// card is how many members a part has.
func (d *desk) card(part string) int64 {
	return d.rdb.ZCard(d.Context(), d.part(part)).Val()
}

// counts is how many permits each key was granted since from.
func (d *desk) counts(from int) map[string]int {
	all := map[string]int{}
	for _, a := range d.granted[from:] {
		all[a.key] += a.permits
	}
	return all
}

// any is the index of one that is held.
func (d *desk) any() int { return d.random.IntN(len(d.held)) }
