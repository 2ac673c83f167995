package scripts_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	sent     time.Time // when the last call was sent
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
	until   time.Time // a granted one is held until then, if nobody renews it
}

func newDesk(t *testing.T, target redistest.Target, total int) *desk {
	d := &desk{T: t, rdb: clientOf(t, target), handle: hereHandle, total: total, waiting: map[int64]asked{}, embedded: target.Mini != nil}
	d.random = rand.New(rand.NewPCG(redistest.Seed(t), 1))
	r := keys.Family{Kind: keys.Semaphore, Name: redistest.Name(t)}.Together()
	for _, part := range parts {
		d.names = append(d.names, r.Part(part))
	}
	return d
}

// other is another handle at the same family, before either has asked for anything.
func (d *desk) other() *desk {
	other := *d
	other.handle, other.waiting = thereHandle, map[int64]asked{}
	return &other
}

func (d *desk) run(script string, args ...any) []int64 {
	d.Helper()
	d.sent = time.Now()
	v, err := scripts[script].Run(context.Background(), d.rdb, d.names, args...).Int64Slice()
	redistest.CheckNow(d, err == nil, "%s %v: %v", script, args, err)
	return v
}

// hold takes a grant of remains ms. A grant by another handle lasts 2 s, which a busy machine may take for one call.
func (d *desk) hold(a asked, remains int64) {
	a.until = d.sent.Add(time.Duration(remains) * time.Millisecond)
	d.held, d.granted = append(d.held, a), append(d.granted, a)
}

// hear takes the outcomes of waiters.
func (d *desk) hear(v []int64) {
	for ; len(v) >= 3; v = v[3:] {
		a, ok := d.waiting[v[0]]
		redistest.CheckNow(d, ok, "an outcome of %d, which does not wait: %v", v[0], v)
		delete(d.waiting, v[0])
		if v[1] > 0 {
			d.hold(a, v[1])
		}
	}
}

var scripts = map[string]*redis.Script{
	"enter": redis.NewScript(luascripts.TotalsEnter()), "leave": redis.NewScript(luascripts.TotalsLeave()),
	"ask": redis.NewScript(luascripts.TotalsAsk()), "set": redis.NewScript(luascripts.TotalsSetLimit()),
	"revoke": redis.NewScript(luascripts.TotalsRevoke()),
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
		d.hold(a, v[2])
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
	redistest.CheckNow(d, v[0] == 1 || time.Now().After(a.until), "leave %s answered %v", a.member, v)
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

// part is the name of a part in Redis.
func (d *desk) part(name string) string { return d.names[slices.Index(parts, name)] }

// Whatever key is lost, all that wait are served once their process has given its
// next sign of life, and no key holds more than its limit meanwhile.
func TestLostPartsHealWithinASignOfLife(t *testing.T) {
	for _, lost := range parts {
		t.Run(lost, func(t *testing.T) {
			eachDesk(t, 4, func(t *testing.T, d *desk) {
				other := d.other()
				for i := range 12 {
					d.enter(fmt.Sprintf("k%d", i%3), 1, 2, 1)
					other.enter(fmt.Sprintf("k%d", i%3), 1, 2, 1)
				}
				d.rdb.Del(t.Context(), d.part(lost))
				if lost == "holders" {
					d.held, other.held = nil, nil
				}
				both := []*desk{d, other}
				for n := 0; n < 200 && len(d.held)+len(other.held)+len(d.waiting)+len(other.waiting) > 0; n++ {
					for _, one := range both {
						one.settle()
						use, all := map[string]int{}, 0
						for _, a := range slices.Concat(d.held, other.held) {
							if time.Now().Before(a.until) {
								use[a.key]++
								all++
								redistest.CheckNow(t, use[a.key] <= 2 && all <= 4, "%s holds %d permits of 2, and all hold %d of 4", a.key, use[a.key], all)
							}
						}
						if len(one.held) > 0 {
							one.leave(one.any())
						}
					}
				}
				redistest.Expect(t, len(d.waiting)+len(other.waiting), 0, "%d still wait")
				redistest.Expect(t, d.rdb.ZCard(t.Context(), d.part("holders")).Val(), 0, "%d permits are left")
			})
		})
	}
}

// MaxWaiters counts the living, also where more waiters of other keys died before than one call drops.
func TestDeadWaitersOfTheKeyDoNotCount(t *testing.T) {
	eachDesk(t, 1, func(t *testing.T, d *desk) {
		dead := d.other()
		d.enter("k", 1, 1, 1)
		for i := range 150 {
			dead.enter(fmt.Sprintf("other%d", i%10), 1, 1, 1)
		}
		for range 3 {
			dead.enter("k", 1, 1, 1)
		}
		now := redistest.Must(d.rdb.Time(t.Context()).Result())(t)
		for _, a := range dead.waiting {
			ended := now.Add(-time.Minute)
			if a.key == "k" {
				ended = now.Add(-time.Second)
			}
			d.rdb.ZAdd(t.Context(), d.part("alive"), redis.Z{Score: float64(ended.UnixMilli()), Member: a.member})
		}
		member := fmt.Sprintf("k:%s.1000.1.%d.1.1.1", d.handle, deskTTL)
		v := d.run("enter", member, 1, deskTTL, 1, 1, 0, "0 2 0")
		redistest.Check(t, v[0] == 2, "a living waiter beside three dead ones is answered %v; want that it is queued", v)
	})
}

// The first waiter of a key would fit under the key's own limit, but its sign of life is overdue. The one behind it asks
// for more than that limit leaves, and gets nothing, though the family has room.
func TestWaiterBehindAnOverdueOneKeepsToItsKeysLimit(t *testing.T) {
	eachDesk(t, 3, func(t *testing.T, d *desk) {
		silent := d.other()
		d.enter("k", 1, 2, 1)
		d.enter("elsewhere", 2, 2, 1)
		silent.enter("k", 1, 2, 1)
		d.enter("k", 2, 2, 1)
		d.sign = time.Now() // its enter was one
		for _, a := range silent.waiting {
			sign := redistest.Must(d.rdb.Time(t.Context()).Result())(t).Add(overdue)
			d.rdb.ZAdd(t.Context(), d.part("alive"), redis.Z{Score: float64(sign.UnixMilli()), Member: a.member})
		}
		d.leave(1)
		redistest.Check(t, len(d.held) == 1 && len(d.waiting) == 1, "%v are held, and %v wait", d.held, d.waiting)
	})
}

// settle asks what became of each waiter, and enters again what has lost its place.
func (d *desk) settle() {
	d.Helper()
	var all []asked
	args := []any{d.handle, d.total}
	for _, a := range d.waiting {
		all, args = append(all, a), append(args, a.member)
	}
	v := d.run("ask", args...)
	for i, a := range all {
		switch s := v[6+5*i:]; {
		case s[0] == 1:
			delete(d.waiting, a.seq)
			d.hold(a, s[1])
		case s[0] == 0:
			delete(d.waiting, a.seq)
			d.enter(a.key, a.permits, a.limit, a.share)
		}
	}
}

// A key of a wrong type ends each script with an error before anything was changed.
func TestWrongTypesChangeNothing(t *testing.T) {
	for _, wrong := range parts {
		t.Run(wrong, func(t *testing.T) {
			eachDesk(t, 2, func(t *testing.T, d *desk) {
				d.enter("k", 1, 2, 1)
				d.enter("k", 1, 2, 1)
				d.enter("k", 1, 2, 1)
				d.rdb.Set(t.Context(), d.part(wrong), "another program's", 0)
				before := d.dump()
				member := fmt.Sprintf("k:%s.99.2.60000.2.1.2", d.handle)
				waiter := ""
				for _, a := range d.waiting {
					waiter = a.member
				}
				now := d.rdb.Time(t.Context()).Val()
				calls := map[string][]any{
					"enter": {member, 2, 60_000, 2, 2, 0, "0 0 0"}, "ask": {d.handle, 2, waiter},
					"set":    {"k", 1, d.handle, now.UnixMicro(), 2},
					"revoke": {waiter, "aaaaaaaa-3", "a test", 2},
				}
				if wrong == "revoked" || wrong == "audit" { // which no other script has
					calls = map[string][]any{"revoke": calls["revoke"]}
				}
				for script, args := range calls {
					v, err := scripts[script].Run(t.Context(), d.rdb, d.names, args...).Result()
					redistest.Check(t, err != nil && strings.Contains(err.Error(), "WRONGTYPE"), "%s answered %v, %v; want WRONGTYPE", script, v, err)
					redistest.Expect(t, d.dump(), before, "%s changed\n%s\nto\n%s", script, before)
				}
			})
		})
	}
}

// dump is what the keys hold, as text.
func (d *desk) dump() string {
	var all []string
	for i, name := range d.names {
		text := ""
		switch kind := d.rdb.Type(d.Context(), name).Val(); kind {
		case "zset":
			for _, z := range d.rdb.ZRangeWithScores(d.Context(), name, 0, -1).Val() {
				if parts[i] == "alive" {
					z.Score = 0 // signs of life come all the time
				}
				text += fmt.Sprintf(" %v=%.3f", z.Member, z.Score)
			}
		case "hash":
			text = fmt.Sprint(d.rdb.HGetAll(d.Context(), name).Val())
		default:
			text = kind
		}
		all = append(all, parts[i]+":"+text)
	}
	return strings.Join(all, "\n")
}
