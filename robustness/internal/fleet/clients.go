package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
	"github.com/leasehold-go/leasehold/semaphore"
)

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

// span is how long to hold: mostly short, sometimes so long that it takes renewals.
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

func (c *client) permits(key string) *semaphore.Semaphore {
	if key[0] == 't' {
		return c.total
	}
	return c.sem
}

func (c *client) hold(key string, n int, wait bool) error {
	acquire := c.permits(key).AcquireN
	if !wait {
		acquire = c.permits(key).TryAcquireN
	}
	call := history.Event{Op: history.Acquire, Key: key, Permits: n}
	return c.keep(call, history.Release, func(ctx context.Context) (lease, uint64, func() error, error) {
		l, err := acquire(ctx, key, n)
		if err != nil {
			return nil, 0, nil, err
		}
		return l, 0, l.Release, nil
	}, func(int, uint64) {})
}

type lease interface {
	ID() string
	Context() context.Context
	Deadline() time.Time
}

// keep takes a lease, keeps it for a while, and gives it back by that operation. It calls use before
// and after that while, with the ID of the call and the token.
func (c *client) keep(
	call history.Event, end string, take func(context.Context) (lease, uint64, func() error, error), use func(id int, token uint64),
) error {
	ctx, got, cancel := c.waiting()
	defer cancel()
	id := c.begin(call)
	l, token, release, err := take(ctx)
	if err != nil {
		c.returned(id, history.Event{}, err)
		return err
	}
	got()
	c.returned(id, history.Event{Lease: l.ID(), Token: token, Deadline: history.At(l.Deadline())}, nil)
	stop := c.watch(id, l.Context(), l.Deadline)
	use(id, token)
	ahead := c.work(l.Context(), l.Deadline, c.span())
	use(id, token)
	r := c.begin(history.Event{Op: end, Key: call.Key, For: id, Deadline: history.At(l.Deadline()), Ahead: ahead})
	stop()
	c.returned(r, history.Event{}, release())
	return nil
}

// work takes its time and returns how far ahead the lease's deadline lay at most. One in four doesn't heed ctx.
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
	lock := c.mtx.Lock
	if !c.final && c.rng.IntN(5) == 0 {
		lock = c.mtx.TryLock
	}
	var lockID int
	var last uint64
	write := func(id int, token uint64) {
		lockID, last = id, token
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		w := c.begin(history.Event{Op: history.Write, Key: key, For: id, Token: token})
		c.returned(w, history.Event{}, c.guard.Set(ctx, key, token, w, time.Minute))
	}
	err := c.keep(history.Event{Op: history.Lock, Key: key}, history.Unlock, func(ctx context.Context) (lease, uint64, func() error, error) {
		l, err := lock(ctx, key)
		if err != nil {
			return nil, 0, nil, err
		}
		return l, l.Token(), l.Unlock, nil
	}, write)
	if err == nil && c.rng.IntN(8) == 0 && !c.final {
		// A holder that has not noticed that it let go, while others lock and write.
		time.Sleep(time.Duration(c.rng.IntN(10_000)) * time.Microsecond)
		write(lockID, last)
	}
	return err
}

// slotEvery is how often there is a new slot. All processes see the same clock.
const slotEvery = 200 * time.Millisecond

// SlotsKept is how long the completion of a slot is known: longer than a run of histories, and
// short beside a long soak, in which nothing may add up.
const SlotsKept = time.Minute

// useSlot runs the slot of this moment if nobody has. One run in six fails.
func (c *client) useSlot() {
	ctx, cancel := c.ctx()
	defer cancel()
	slot := fmt.Sprint(history.Now() / int64(slotEvery))
	do := c.mtx.DoOnce
	if c.rng.IntN(4) == 0 {
		do = c.mtx.TryDoOnce
	}
	key := "o0/" + slot
	id := c.begin(history.Event{Op: history.Once, Key: key})
	ran, err := do(ctx, "o0", slot, SlotsKept, func(ctx context.Context, _ uint64) (err error) {
		r := c.begin(history.Event{Op: history.Run, Key: key, For: id})
		select {
		case <-time.After(c.span()):
		case <-ctx.Done():
		}
		if c.rng.IntN(6) == 0 {
			err = errGaveUp
		}
		c.returned(r, history.Event{}, err)
		return err
	})
	c.returned(id, history.Event{Ran: ran}, err)
}

func (c *client) useValue() {
	switch c.rng.IntN(12) {
	case 0:
		c.invalidate()
	case 1:
		c.fetchMany()
	default:
		_ = c.fetch(c.key("c", values))
	}
}

func (c *client) invalidate() {
	keys := []string{c.key("c", values)}
	if c.rng.IntN(3) == 0 {
		keys = []string{"c0", "c1"}
	}
	ctx, cancel := c.ctx()
	defer cancel()
	id := c.begin(history.Event{Op: history.Invalidate, Keys: keys})
	c.returned(id, history.Event{}, c.group.Invalidate(ctx, keys...))
}

func (c *client) fetch(key string) error {
	ctx, cancel := c.ctx()
	defer cancel()
	var id int
	load := c.loader(key, &id, false)
	id = c.begin(history.Event{Op: history.Read, Keys: []string{key}})
	value, err := c.group.Do(ctx, key, load)
	c.returned(id, history.Event{Values: seen(map[string]string{key: value})}, err)
	return err
}

func (c *client) fetchMany() {
	ctx, cancel := c.ctx()
	defer cancel()
	var id int
	var keys []string
	loads := map[string]func(context.Context) (string, error){}
	for i := range values {
		key := fmt.Sprint("c", i)
		keys, loads[key] = append(keys, key), c.loader(key, &id, true)
	}
	id = c.begin(history.Event{Op: history.Read, Keys: keys, Many: true})
	found, err := c.group.DoMany(ctx, keys, func(ctx context.Context, missing []string) (map[string]string, error) {
		got := map[string]string{}
		for _, key := range missing {
			value, err := loads[key](ctx)
			if err != nil {
				return nil, err
			}
			got[key] = value
		}
		return got, nil
	})
	// Some keys may be found where others failed.
	c.returned(id, history.Event{Values: seen(found)}, err)
}

// seen are values without what makes them long.
func seen(found map[string]string) map[string]string {
	all := map[string]string{}
	for key, value := range found {
		if value = strings.TrimRight(value, "~"); value != "" {
			all[key] = value
		}
	}
	return all
}

// loader makes one for the read that will have that ID. Its value names its load.
// Its choices are made here: it runs on another goroutine.
func (c *client) loader(key string, read *int, many bool) func(context.Context) (string, error) {
	d := time.Duration(c.rng.IntN(15_000)) * time.Microsecond
	if !c.final && c.rng.IntN(30) == 0 {
		d = time.Duration(float64(c.Terms.TTL) * (0.5 + c.rng.Float64()))
	}
	heeds := c.rng.IntN(2) == 0
	tail := ""
	if c.rng.IntN(3) == 0 {
		tail = strings.Repeat("~", 6000) // too long to ride on a message
	}
	return func(ctx context.Context) (string, error) {
		id := c.call(history.Event{Op: history.Load, Key: key, Client: c.number, For: *read, Many: many})
		stop := c.watch(id, ctx, nil)
		defer stop()
		var err error
		select {
		case <-time.After(d):
		case <-ctx.Done():
			if heeds {
				err = errGaveUp
			} else {
				time.Sleep(d / 4) // and comes too late
			}
		}
		c.returned(id, history.Event{}, err)
		return fmt.Sprintf("%s.%d%s", c.Worker, id, tail), err
	}
}
