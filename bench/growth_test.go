package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// side is a server in some state, and what is timed there: one pair of calls.
type side struct {
	stats *redis.Client
	pair  func() time.Duration
}

// growth reports the time of a grown side's pair and the server's time of one of its scripts, medians both,
// beside those of the smallest ("base"): the two run by turns. A turn is 20 pairs, of which the server's time is
// the mean, so that what handles do in the background is in few of the turns.
func growth(b *testing.B, base, grown side) {
	b.Helper()
	const chunk = 20
	all := []struct {
		prefix string
		side
		pairs, server []time.Duration
	}{{prefix: "base-", side: base}, {side: grown}}
	turn := func(i int) {
		s := &all[i]
		micros, calls := harness.ServerMicros(b, s.stats, "evalsha")
		for range chunk {
			s.pairs = append(s.pairs, s.pair())
		}
		after, done := harness.ServerMicros(b, s.stats, "evalsha")
		s.server = append(s.server, time.Duration((after-micros)/(done-calls)*1000))
	}
	for i := range all { // connections dialled, scripts loaded
		turn(i)
		all[i].pairs, all[i].server = nil, nil
	}
	for b.Loop() {
		for i := range all {
			turn(i)
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, s := range all {
		b.ReportMetric(harness.Micros(harness.Percentile(s.pairs, 50)), s.prefix+"pair-µs")
		b.ReportMetric(harness.Micros(harness.Percentile(s.server, 50)), s.prefix+"server-µs")
	}
}

// size is how many there are in the end: fewer where testing is short, for to set them up takes seconds.
func size(n int) int {
	if testing.Short() {
		return min(n, 1000)
	}
	return n
}

// grows compares a side of n with one of its own of 1. fill also tells the bytes for each one of n.
func grows(b *testing.B, n int, fill func(b *testing.B, n int) (_ side, server, heap float64)) {
	base, _, _ := fill(b, 1)
	grown, server, heap := fill(b, n)
	growth(b, base, grown)
	b.ReportMetric(server, "server-B")
	b.ReportMetric(heap, "Go-B")
}

// A permit is taken and given back where 10, and where 100,000 are held, its own included, of the same key. The others
// are written as the library would, by handles that do nothing more. Both sides are keys of one server.
func BenchmarkGrowHolders(b *testing.B) {
	const limit = 100_000 // the most there can be
	n, srv := size(limit), harness.StartOwn(b)
	stats, s := srv.Client(), permits(b, srv.Client(), limit)
	pair := func(key string) func() time.Duration {
		return harness.Timed(b, func() error {
			l, err := s.TryAcquire(context.Background(), key)
			if err == nil {
				err = l.Release()
			}
			return err
		})
	}
	hold(b, stats, "base", 9, limit)
	hold(b, stats, "grown", n-1, limit)
	growth(b, side{stats, pair("base")}, side{stats, pair("grown")})
	b.ReportMetric(harness.KeyMemory(b, stats, part(b, keys.Semaphore, "grown", "holders"))/float64(n-1), "server-B")
}

// hold writes n holders of key, of a handle each thousand, that expire one after the other from an hour hence.
func hold(b *testing.B, rdb *redis.Client, key string, n, limit int) {
	b.Helper()
	holders, first := part(b, keys.Semaphore, key, "holders"), time.Now().Add(time.Hour)
	pipe := rdb.Pipeline()
	for i := range n {
		member := fmt.Sprintf("handle%016d.%d.1.3600000.%d", i/1000, i%1000+1, limit)
		pipe.ZAdd(b.Context(), holders, redis.Z{Score: float64(first.UnixMilli() + int64(i)), Member: member})
		if i%1000 == 999 || i == n-1 {
			pipe.PExpireAt(b.Context(), holders, first.Add(time.Duration(i)*time.Millisecond))
			redistest.Must(pipe.Exec(b.Context()))(b)
		}
	}
	got, err := rdb.ZCard(b.Context(), holders).Result()
	redistest.CheckNow(b, err == nil && got == int64(n), "%d holders are there, %v; want %d", got, err, n)
}

// A lock of a free key is taken and given back by a handle that holds 1, and 100,000 others. "server-B" is all that
// the server keeps of a lock held, its fence included, "Go-B" what the handle keeps of it on the heap.
func BenchmarkGrowKeys(b *testing.B) {
	grows(b, size(100_000), heldKeys)
}

func heldKeys(b *testing.B, n int) (_ side, server, heap float64) {
	b.Helper()
	ctx := context.Background()
	srv := harness.StartOwn(b)
	stats := srv.Client()
	// Too long to be renewed while the pairs are timed.
	m := locks(b, srv.Client(harness.Pool(filling)), func(c *mutex.Config) { c.TTL = 10 * time.Minute })
	pair := func(key string) error { return lockTurn(ctx, m, key, nil) }
	fill(b, 4*filling, func(i int) error { return pair(fmt.Sprint("warm-", i)) })
	server, heap = harness.ServerMemory(b, stats), harness.Heap()
	fill(b, n, func(i int) error { _, err := m.Lock(ctx, fmt.Sprint("key-", i)); return err })
	server, heap = harness.ServerMemory(b, stats)-server, harness.Heap()-heap
	return side{stats, harness.Timed(b, func() error { return pair("pair") })}, server / float64(n), heap / float64(n)
}

// A lock is handed over where 1, and where 10,000 wait for it, of sixteen handles in this process: "pair-µs" is from the
// call of Unlock to the return of the next owner's Lock, "server-µs" the server's time of a call of the pair,
// which is the leave that hands over and the enter of the caller that waits again. "server-B" is what the server
// keeps of a waiter, "Go-B" what its handle and its call keep on the heap.
func BenchmarkGrowWaiters(b *testing.B) {
	grows(b, size(10_000), waiters)
}

type crowd struct {
	b       *testing.B
	stats   *redis.Client
	handles []*mutex.Mutex
	size    int
	granted chan turn
	now     turn
}

// turn is a lock that the waiter with this number has had since at.
type turn struct {
	lock *mutex.Lock
	who  int
	at   time.Time
}

func waiters(b *testing.B, n int) (_ side, server, heap float64) {
	b.Helper()
	srv := harness.StartOwn(b)
	c := &crowd{b: b, stats: srv.Client(), size: n, granted: make(chan turn, n+1)}
	rdb := srv.Client(harness.Pool(filling))
	dial(b, rdb)
	for range 16 {
		c.handles = append(c.handles, locks(b, rdb))
	}
	c.wait(0)
	c.now = <-c.granted
	// The first of each handle has it subscribe: that is the handle's, not theirs.
	first := min(n, len(c.handles))
	for i := range first {
		c.wait(i + 1)
	}
	c.queued(first)
	time.Sleep(100 * time.Millisecond)
	heap = harness.Heap()
	for i := first; i < n; i++ {
		c.wait(i + 1)
	}
	c.queued(n)
	heap = harness.Heap() - heap
	server = harness.KeyMemory(b, c.stats, part(b, keys.Mutex, "k", "queue"), part(b, keys.Mutex, "k", "alive"))
	return side{c.stats, c.handOver}, server / float64(n), heap / float64(max(1, n-first))
}

// wait lets waiter who queue, of the handle that its number says: neighbours in
// the queue are mostly of different ones, so that a message tells of the grant.
func (c *crowd) wait(who int) {
	m := c.handles[who%len(c.handles)]
	go func() {
		l, err := m.Lock(context.Background(), "k")
		if err == nil { // else the handle was closed
			c.granted <- turn{l, who, time.Now()}
		}
	}()
}

func (c *crowd) queued(n int) { waiting(c.b, c.stats, keys.Mutex, "k", n) }

func (c *crowd) handOver() time.Duration {
	last := c.now
	began := time.Now()
	redistest.WantErr(c.b, last.lock.Unlock())
	c.now = <-c.granted
	took := c.now.at.Sub(began)
	c.wait(last.who)
	c.queued(c.size)
	return took
}

// dial has the client make all of its connections: their buffers would else count as somebody's memory. Those for
// pipelines are kept apart from those for single calls, and have larger buffers.
func dial(b *testing.B, rdb *redis.Client) {
	b.Helper()
	ctx := context.Background()
	all := make([]*redis.Conn, rdb.Options().PoolSize)
	for i := range all {
		all[i] = rdb.Conn()
		redistest.WantErr(b, all[i].Ping(ctx).Err())
	}
	for _, conn := range all { // back to the pool
		_ = conn.Close()
	}
	fill(b, 20*filling, func(int) error {
		_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Ping(ctx)
			return pipe.Ping(ctx).Err()
		})
		return err
	})
}
