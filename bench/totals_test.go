package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	counted "github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/setting"
	"github.com/leasehold-go/leasehold/internal/totals"
	"github.com/leasehold-go/leasehold/semaphore"
)

// desk takes and gives back permits of a family by bare calls, one after the other, and
// keeps waiters in the queues. It has one handle, so that grants come in replies.
type desk struct {
	b        *testing.B
	client   *call.Client
	family   *totals.Family // nil: without a total
	resource func(key string) protocol.Resource
	limit    int
	seq      uint64
	held     []protocol.Request
	keyOf    map[uint64]string
	waiting  map[uint64]protocol.Request
	asked    time.Time
}

var nextDesk int

func newDesk(b *testing.B, rdb *redis.Client, total, limit int) *desk {
	b.Helper()
	nextDesk++
	family := keys.Family{Kind: keys.Semaphore, Name: "desk" + strconv.Itoa(nextDesk)}
	d := &desk{b: b, client: redistest.Must(call.NewClient(rdb))(b), limit: limit, keyOf: map[uint64]string{}, waiting: map[uint64]protocol.Request{}}
	if total > 0 {
		d.family = totals.NewFamily(family, total, 0)
	}
	known := map[string]protocol.Resource{}
	d.resource = func(key string) protocol.Resource {
		if r := known[key]; r != nil {
			return r
		}
		var r protocol.Resource
		var err error
		if total > 0 {
			r, err = d.family.Resource(key)
		} else {
			r, err = counted.Family{Family: family}.Resource(key)
		}
		redistest.WantErr(b, err)
		known[key] = r
		return r
	}
	return d
}

func (d *desk) do(c *call.Call) []int64 {
	d.b.Helper()
	return redistest.Must(d.client.Do(context.Background(), c))(d.b)
}

// hear takes grants to those that waited.
func (d *desk) hear(grants []protocol.Result) {
	for _, g := range grants {
		d.held = append(d.held, d.waiting[g.Seq])
		delete(d.waiting, g.Seq)
	}
}

func (d *desk) enter(key string) {
	d.b.Helper()
	d.seq++
	q := d.resource(key).Request(protocol.Terms{
		Handle: "handle0000000000000000", Seq: d.seq, Permits: 1, TTL: 10 * time.Minute, Limit: d.limit, Want: 1,
	})
	c := q.Enter(protocol.EnterOptions{Wait: true})
	r, err := q.ReadEnter(c, d.do(c))
	switch {
	case err != nil:
		d.b.Fatal(err)
	case r.Code == life.Granted:
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
	if err != nil || r.Code != life.Held {
		d.b.Fatalf("leave: %+v, %v", r, err)
	}
	d.hear(r.Grants)
}

// live brings the sign of life of all that wait.
func (d *desk) live() {
	d.b.Helper()
	d.asked = time.Now()
	byKey := map[string][]protocol.Request{}
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
			some := all[:min(len(all), protocol.MaxAsk)]
			all = all[len(some):]
			c := res.Ask(some)
			d.hear(redistest.Must(res.ReadAsk(c, d.do(c), some))(d.b).Grants)
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
			d.live()
		}
	}
}

// BenchmarkTotals is what a pair costs the server (EVALSHA, by its own account) in a
// family with a total, beside one without, and how that grows with keys and waiters. A
// turn is twenty pairs; of the turns the median is reported.
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
		{name: "plain", d: newDesk(b, rdb, 0, 10)},
		{name: "total", d: newDesk(b, rdb, 10, 10)},
		{name: "plain-32-wait", d: newDesk(b, rdb, 0, 10), keys: 1, each: 32},
		{name: "total-32-wait", d: newDesk(b, rdb, 10, 1000), keys: 1, each: 32},
		{name: "total-10-keys", d: newDesk(b, rdb, 10, 1000), keys: 10, each: 2},
		{name: "total-10000-keys", d: newDesk(b, rdb, 10, 1000), keys: 10_000, each: 1},
		{name: "total-10-waiters", d: newDesk(b, rdb, 10, 1000), keys: 1, each: 10},
		{name: "total-10000-waiters", d: newDesk(b, rdb, 10, 1000), keys: 1, each: 10_000},
	}
	const pairs = 20
	turn := func(b *testing.B, r *row) {
		d := r.d
		if r.keys > 0 {
			d.live()
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
		})
	}
}

// BenchmarkRaise is a raise of the total by which 1,790 waiters of 300 keys in another
// process are granted: how long the longest of its calls occupies the server, by its own
// account, and how many calls it takes.
func BenchmarkRaise(b *testing.B) {
	srv := harness.StartOwn(b)
	rdb, stats := srv.Client(), srv.Client()
	ctx := context.Background()
	for name, value := range map[string]string{"slowlog-log-slower-than": "0", "slowlog-max-len": "10000"} {
		redistest.WantErr(b, stats.ConfigSet(ctx, name, value).Err())
	}
	var longest []time.Duration
	calls := 0
	for b.Loop() {
		d := newDesk(b, rdb, 10, 1000)
		d.fill(300, 5)
		d.live()
		// A key of the family alone takes the setting: the total is "" there.
		raise := func() bool {
			c := d.family.Whole().Set(protocol.SetOptions{Handle: "another000000000000000", Limit: 100_000, Number: time.Now().UnixMicro()})
			r, err := setting.Read(d.do(c))
			redistest.CheckNow(b, err == nil && r.Stored, "set: %+v, %v", r, err)
			return r.More
		}
		redistest.WantErr(b, stats.Do(ctx, "SLOWLOG", "RESET").Err())
		calls = 1
		for raise() {
			calls++
		}
		log := redistest.Must(stats.SlowLogGet(ctx, 10_000).Result())(b)
		var most time.Duration
		for _, entry := range log {
			if entry.Args[0] == "evalsha" {
				most = max(most, entry.Duration)
			}
		}
		longest = append(longest, most)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(calls), "calls")
	b.ReportMetric(harness.Micros(harness.Percentile(longest, 50)), "longest-call-µs")
}

// BenchmarkTotalsSlot is how many turns a second one family carries, of 256 goroutines
// of two handles: where all find a permit, and where 40 keys wait for a total of 20.
func BenchmarkTotalsSlot(b *testing.B) {
	srv := harness.StartOwn(b)
	for _, r := range []struct {
		name         string
		limit, total int
	}{{"plain-free", 1000, 0}, {"total-free", 1000, 1000}, {"total-40-keys-wait", 10, 20}} {
		b.Run(r.name, func(b *testing.B) {
			var handles []*semaphore.Semaphore
			for range 2 {
				h := redistest.Must(semaphore.New(srv.Client(), semaphore.Config{Name: r.name, Limit: r.limit, Total: r.total}))(b)
				handles = append(handles, h)
			}
			var next atomic.Int64
			var all sync.WaitGroup
			began := time.Now()
			for i := range 256 {
				h, key := handles[i%2], "k"+strconv.Itoa(i%40)
				all.Go(func() {
					for next.Add(1) <= int64(b.N) {
						redistest.NoError(b, permitTurn(context.Background(), h, key, nil))
					}
				})
			}
			all.Wait()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "turns/s")
			for _, h := range handles {
				closed(b, h)
			}
		})
	}
}
