package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

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
						use := map[string]int{}
						for _, a := range append(append([]asked(nil), d.held...), other.held...) {
							if use[a.key]++; use[a.key] > 2 {
								t.Fatalf("%s holds %d permits; its limit is 2", a.key, use[a.key])
							}
						}
						redistest.CheckNow(t, len(d.held)+len(other.held) <= 4, "%d permits are held of 4", len(d.held)+len(other.held))
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
		d.enter("k", 1, 1, 1)
		dead := d.other()
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

// A waiter that is queued anew after queue was lost finds its place in line still there. It is counted once.
func TestWaiterThatIsQueuedAnewCountsOnce(t *testing.T) {
	eachDesk(t, 1, func(t *testing.T, d *desk) {
		d.enter("k", 1, 1, 1)
		waiter := fmt.Sprintf("k:%s.100.1.10000.1.1.1", d.handle)
		v := d.run("enter", waiter, 1, 10_000, 1, d.total, 0, "0 0 0")
		redistest.CheckNow(t, v[0] == 2 && v[6] == 1, "enter answered %v", v)
		ticket := d.rdb.ZScore(t.Context(), d.part("queue"), waiter).Val()
		d.rdb.Del(t.Context(), d.part("queue"), d.part("alive"))
		v = d.run("enter", waiter, 1, 10_000, 1, d.total, 0, fmt.Sprintf("%.0f 0 0", ticket))
		redistest.Check(t, v[0] == 2 && v[6] == 1, "enter answered %v; it is the only waiter", v)
	})
}

// marks are the requests that hold others up.
func (d *desk) marks() (all []string) {
	for _, member := range d.rdb.ZRange(d.Context(), d.part("turns"), 0, -1).Val() {
		if strings.Index(member, ":") > 0 {
			all = append(all, member)
		}
	}
	return all
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
			d.held, d.granted = append(d.held, a), append(d.granted, a)
		case s[0] == 0:
			delete(d.waiting, a.seq)
			d.enter(a.key, a.permits, a.limit, a.share)
		}
	}
}
