package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// client is one goroutine of a worker.
type client struct {
	*worker
	number int
	final  bool
	rng    *rand.Rand
}

func (c *client) begin(e history.Event) int {
	e.Client, e.Final = c.number, c.final
	return c.call(e)
}

// ctx is one for a wait: often short, sometimes long.
func (c *client) ctx() (context.Context, context.CancelFunc) {
	if c.final {
		return context.WithTimeout(context.Background(), patience)
	}
	x := c.rng.Float64()
	return context.WithTimeout(context.Background(), 50*time.Millisecond+time.Duration(x*x*x*float64(3*time.Second)))
}

// waiting is a ctx that bounds the wait alone: got ends the bound, since the
// lease's Context would end with it, too.
func (c *client) waiting() (ctx context.Context, got func(), cancel func()) {
	bound, stop := c.ctx()
	ctx, end := context.WithCancel(context.Background())
	unbind := context.AfterFunc(bound, end)
	return ctx, func() { unbind(); stop() }, func() { unbind(); stop(); end() }
}

// span is how long to hold: mostly short, sometimes so long that it takes
// renewals.
func (c *client) span() time.Duration {
	if c.final {
		return time.Millisecond
	}
	ttl := float64(c.Terms.TTL)
	switch x := c.rng.Float64(); {
	case x < 0.03:
		return time.Duration(ttl * (1 + 1.5*c.rng.Float64()))
	case x < 0.08:
		return time.Duration(ttl * (0.3 + c.rng.Float64()/2))
	}
	return time.Duration(c.rng.IntN(8_000)) * time.Microsecond
}

func (c *client) key(prefix string, n int) string { return fmt.Sprint(prefix, c.rng.IntN(n)) }

// use does with a key what its kind is for.
func (c *client) use(key string) error {
	switch key[0] {
	case 's', 't':
		return c.hold(key, 1, true)
	case 'm':
		return c.lock(key)
	}
	return c.fetch(key)
}

func (c *client) useSemaphore() { c.useKey(c.key("s", semaphores)) }

func (c *client) useTotal() { c.useKey(c.key("t", shared)) }

func (c *client) useKey(key string) {
	n := 1
	if c.rng.IntN(5) == 0 {
		n = 2
	}
	_ = c.hold(key, n, c.rng.IntN(5) != 0)
}

func (c *client) hold(key string, n int, wait bool) error {
	ctx, got, cancel := c.waiting()
	defer cancel()
	sem := c.sem
	if key[0] == 't' {
		sem = c.total
	}
	acquire := sem.AcquireN
	if !wait {
		acquire = sem.TryAcquireN
	}
	id := c.begin(history.Event{Op: history.Acquire, Key: key, Permits: n})
	l, err := acquire(ctx, key, n)
	if err != nil {
		c.returned(id, history.Event{}, err)
		return err
	}
	got()
	c.returned(id, history.Event{Lease: l.ID(), Deadline: history.At(l.Deadline())}, nil)
	stop := c.watch(id, l.Context(), l.Deadline)
	ahead := c.work(l.Context(), l.Deadline, c.span())
	r := c.begin(history.Event{Op: history.Release, Key: key, For: id, Deadline: history.At(l.Deadline()), Ahead: ahead})
	stop()
	c.returned(r, history.Event{}, l.Release())
	return nil
}

// work takes its time and returns how far ahead the lease's deadline lay at most.
// One in four doesn't heed ctx.
func (c *client) work(ctx context.Context, deadline func() time.Time, d time.Duration) (ahead time.Duration) {
	done := ctx.Done()
	if c.rng.IntN(4) == 0 {
		done = nil
	}
	over := time.After(d)
	look := time.NewTicker(3 * time.Millisecond)
	defer look.Stop()
	for {
		ahead = max(ahead, time.Until(deadline()))
		select {
		case <-look.C:
		case <-over:
			return ahead
		case <-done:
			return ahead
		}
	}
}

func (c *client) useMutex() { _ = c.lock(c.key("m", mutexes)) }

// lock locks, writes, and unlocks. What is written under a lock that is lost, the
// guard has to refuse, if another holder has written.
func (c *client) lock(key string) error {
	ctx, got, cancel := c.waiting()
	defer cancel()
	lock := c.mtx.Lock
	if !c.final && c.rng.IntN(5) == 0 {
		lock = c.mtx.TryLock
	}
	id := c.begin(history.Event{Op: history.Lock, Key: key})
	l, err := lock(ctx, key)
	if err != nil {
		c.returned(id, history.Event{}, err)
		return err
	}
	got()
	c.returned(id, history.Event{Lease: l.ID(), Token: l.Token(), Deadline: history.At(l.Deadline())}, nil)
	stop := c.watch(id, l.Context(), l.Deadline)
	c.write(id, key, l)
	ahead := c.work(l.Context(), l.Deadline, c.span())
	c.write(id, key, l)
	u := c.begin(history.Event{Op: history.Unlock, Key: key, For: id, Deadline: history.At(l.Deadline()), Ahead: ahead})
	stop()
	c.returned(u, history.Event{}, l.Unlock())
	if c.rng.IntN(8) == 0 && !c.final {
		// A holder that has not noticed that it let go, while others lock and write.
		time.Sleep(time.Duration(c.rng.IntN(10_000)) * time.Microsecond)
		c.write(id, key, l)
	}
	return nil
}

func (c *client) write(lease int, key string, l *mutex.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	id := c.begin(history.Event{Op: history.Write, Key: key, For: lease, Token: l.Token()})
	c.returned(id, history.Event{}, c.guard.Set(ctx, key, l.Token(), id, time.Minute))
}
