package bench

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	protocol "github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/totals"
)

// desk takes and gives back permits of a family by bare calls, one after the other, and
// keeps waiters in the queues. It has one handle, so that grants come in replies.
type desk struct {
	b        *testing.B
	client   *call.Client
	stats    *redis.Client
	resource func(key string) lease.Resource
	limit    int
	seq      uint64
	held     []lease.Request
	keyOf    map[uint64]string
	waiting  map[uint64]lease.Request
	asked    time.Time
}

var nextDesk int

func newDesk(b *testing.B, rdb, stats *redis.Client, total, limit int) *desk {
	b.Helper()
	client, err := call.NewClient(rdb)
	if err != nil {
		b.Fatal(err)
	}
	nextDesk++
	family := keys.Family{Kind: keys.Semaphore, Name: "desk" + strconv.Itoa(nextDesk)}
	d := &desk{b: b, client: client, stats: stats, limit: limit, keyOf: map[uint64]string{}, waiting: map[uint64]lease.Request{}}
	known := map[string]lease.Resource{}
	d.resource = func(key string) lease.Resource {
		if r := known[key]; r != nil {
			return r
		}
		var r lease.Resource
		var err error
		if total > 0 {
			r, err = totals.NewFamily(family, total, 0).Resource(key)
		} else {
			r, err = protocol.Family{Family: family}.Resource(key)
		}
		if err != nil {
			b.Fatal(err)
		}
		known[key] = r
		return r
	}
	return d
}

func (d *desk) do(c *call.Call) []int64 {
	d.b.Helper()
	v, err := d.client.Do(context.Background(), c)
	if err != nil {
		d.b.Fatal(err)
	}
	return v
}

// hear takes grants to those that waited.
func (d *desk) hear(grants []lease.Grant) {
	for _, g := range grants {
		d.held = append(d.held, d.waiting[g.Seq])
		delete(d.waiting, g.Seq)
	}
}

func (d *desk) enter(key string) {
	d.b.Helper()
	d.seq++
	q := d.resource(key).Request(lease.Terms{
		Handle: "handle0000000000000000", Seq: d.seq, Permits: 1, TTL: 10 * time.Minute, Limit: d.limit, Want: 1,
	})
	c := q.Enter(lease.EnterOptions{Wait: true})
	r, err := q.ReadEnter(c, d.do(c))
	switch {
	case err != nil:
		d.b.Fatal(err)
	case r.Code == lease.Granted:
		d.held = append(d.held, q)
	default:
		d.waiting[d.seq], d.keyOf[d.seq] = q, key
	}
	d.hear(r.Grants)
}

// leave gives back what was held first.
func (d *desk) leave() {
	d.b.Helper()
	q := d.held[0]
	d.held = d.held[1:]
	r, err := q.ReadLeave(d.do(q.Leave(0)))
	if err != nil || !r.Held {
		d.b.Fatalf("leave: %+v, %v", r, err)
	}
	d.hear(r.Grants)
}

// live brings the sign of life of all that wait.
func (d *desk) live(keys int) {
	d.b.Helper()
	d.asked = time.Now()
	byKey := map[string][]lease.Request{}
	for seq, q := range d.waiting {
		key := d.keyOf[seq]
		if _, together := d.resource(key).(*totals.Resource); together {
			key = "k0"
		}
		byKey[key] = append(byKey[key], q)
	}
	for key, all := range byKey {
		res := d.resource(key)
		for len(all) > 0 {
			some := all[:min(len(all), lease.MaxAsk)]
			all = all[len(some):]
			c := res.Ask(some)
			r, err := res.ReadAsk(c, d.do(c), some)
			if err != nil {
				d.b.Fatal(err)
			}
			d.hear(r.Grants)
		}
	}
}

// fill has all permits held and so many wait for each of the keys.
func (d *desk) fill(keys, each int) {
	for len(d.waiting) < keys*each {
		before := len(d.waiting)
		for k := range keys {
			d.enter(fmt.Sprint("k", k))
		}
		if len(d.waiting) == before && len(d.held) > 10_000 {
			d.b.Fatal("nobody waits")
		}
		if time.Since(d.asked) > time.Second {
			d.live(keys)
		}
	}
}

// BenchmarkTotals is what a pair costs the server (EVALSHA, by its own account) in a
// family with a total, beside one without, and how that grows with keys and waiters. A
// turn is twenty pairs; of the turns the median is reported, and the twentieth part of
// them that was the quickest, which a busy machine disturbs least.
func BenchmarkTotals(b *testing.B) {
	srv := harness.StartOwn(b)
	rdb, stats := srv.Client(), srv.Client()
	type row struct {
		name       string
		d          *desk
		keys, each int // waiters; 0 keys = none
		spent      []time.Duration
	}
	rows := []*row{
		{name: "plain", d: newDesk(b, rdb, stats, 0, 10)},
		{name: "total", d: newDesk(b, rdb, stats, 10, 10)},
		{name: "plain-32-wait", d: newDesk(b, rdb, stats, 0, 10), keys: 1, each: 32},
		{name: "total-32-wait", d: newDesk(b, rdb, stats, 10, 1000), keys: 1, each: 32},
		{name: "total-10-keys", d: newDesk(b, rdb, stats, 10, 1000), keys: 10, each: 2},
		{name: "total-100-keys", d: newDesk(b, rdb, stats, 10, 1000), keys: 100, each: 10},
		{name: "total-10000-keys", d: newDesk(b, rdb, stats, 10, 1000), keys: 10_000, each: 1},
		{name: "total-10-waiters", d: newDesk(b, rdb, stats, 10, 1000), keys: 1, each: 10},
		{name: "total-10000-waiters", d: newDesk(b, rdb, stats, 10, 1000), keys: 1, each: 10_000},
	}
	const pairs = 20
	turn := func(b *testing.B, r *row) {
		d := r.d
		if r.keys > 0 {
			d.live(r.keys)
		}
		micros, _ := harness.ServerMicros(b, stats, "evalsha")
		for range pairs {
			if r.keys == 0 {
				d.enter("k0")
				d.leave()
				continue
			}
			before := len(d.held)
			d.leave()
			if len(d.held) < before {
				b.Fatalf("%s: nobody was granted", r.name)
			}
			for seq := range d.keyOf { // the key that was granted gets another waiter
				if _, waits := d.waiting[seq]; !waits {
					key := d.keyOf[seq]
					delete(d.keyOf, seq)
					d.enter(key)
					break
				}
			}
		}
		after, _ := harness.ServerMicros(b, stats, "evalsha")
		r.spent = append(r.spent, time.Duration((after-micros)/pairs*float64(time.Microsecond)))
	}
	// One row after the other: waiters that are not asked for in time are dropped.
	for _, r := range rows {
		b.Run(r.name, func(b *testing.B) {
			r.d.b = b
			if r.keys > 0 && len(r.d.waiting) == 0 {
				r.d.fill(r.keys, r.each)
			}
			turn(b, r)
			r.spent = nil
			for b.Loop() {
				turn(b, r)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(harness.Micros(harness.Percentile(r.spent, 50)), "server-µs")
			b.ReportMetric(harness.Micros(harness.Percentile(r.spent, 5)), "best-server-µs")
		})
	}
}
