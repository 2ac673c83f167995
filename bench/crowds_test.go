package bench

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// A lock is handed over where 1 to 10,000 wait for it, of sixteen handles in this process: "pair-µs" is from the
// call of Unlock to the return of the next owner's Lock, "server-µs" the server's time of a call of the pair,
// which is the leave that hands over and the enter of the caller that waits again. "server-B" is what the server
// keeps of a waiter, "Go-B" what its handle and its call keep on the heap.
func BenchmarkGrowWaiters(b *testing.B) {
	growsFilled(b, "waiters", []int{1, 10, 100, 1000, 10_000}, waiters)
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

// dial has the client make all of its connections, whose buffers would else count as somebody's memory: those for
// single calls, and those for pipelines, which it keeps apart and whose buffers are larger.
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
