package simulation

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// client is one process of the fleet: it shares nothing with its successor.
type client struct {
	w      *world
	number int
	label  string // in listings
	rdb    *redis.Client
	line   *line
	local  time.Duration // LocalFor
	near   time.Duration // NearFor
	keep   time.Duration // KeepFor
	stale  time.Duration // StaleFor, or StaleIfError
	sem    *semaphore.Semaphore
	total  *semaphore.Semaphore // of a family with a total
	mtx    *mutex.Mutex
	group  *singleflight.Group[string]
	ctx    context.Context // ends with the client's death, and with the run
	kill   context.CancelFunc

	dead    atomic.Bool
	closing atomic.Bool // or closed
}

func (w *world) newClient(number int) *client {
	c := &client{w: w, number: number, label: fmt.Sprintf("c%d-%d", number, len(w.ever)), line: w.net.line(number)}
	w.labels[c.label] = c
	c.ctx, c.kill = context.WithCancel(context.Background())
	c.rdb = w.client(func(o *redis.Options) {
		o.Dialer = c.line.Dial
		o.DisableIdentity = true
		o.ReadBufferSize, o.WriteBufferSize = 4<<10, 4<<10
		o.ReadTimeout = []time.Duration{0, 700 * time.Millisecond, 1700 * time.Millisecond, 4 * time.Second}[number%4]
	})
	c.rdb.AddHook(redistest.Around(c.line.hook))
	c.local = []time.Duration{0, 20 * time.Millisecond, 200 * time.Millisecond}[number%3]
	c.keep = w.keepFor(number)
	c.sem = redistest.Must(semaphore.New(c.rdb, semaphore.Config{
		Name: "sim", Limit: permits, TTL: semTTL, LocalFor: c.local, KeepFor: c.keep, Label: c.label,
	}))(w.tb)
	cfgTotal := semaphore.Config{
		Name: "sim", Limit: totLimit, Total: total, TTL: semTTL, Label: c.label,
		ShareFor: func(key string) int { return totShares[key] },
	}
	if number%4 == 3 { // a rolling deploy
		cfgTotal.Limit, cfgTotal.Total = otherLimit, otherTotal
	}
	c.total = redistest.Must(semaphore.New(c.rdb, cfgTotal))(w.tb)
	c.mtx = redistest.Must(mutex.New(c.rdb, mutex.Config{Name: "sim", TTL: mtxTTL, LocalFor: c.local, KeepFor: c.keep, Label: c.label}))(w.tb)
	cfg := singleflight.Config[string]{
		Name: "sim", TTL: valueTTL, LeaseTTL: flightTTL, Jitter: -1, Label: c.label,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	// Client 1 has StaleIfError: while Redis is away it would serve copies from before an invalidation.
	c.near = []time.Duration{500 * time.Millisecond, 0, 150 * time.Millisecond, 2 * time.Second}[number%4]
	cfg.NearFor = c.near
	c.stale = []time.Duration{time.Second, 2 * time.Second, time.Second, 0}[number%4]
	switch number % 4 {
	case 0:
		cfg.StaleFor, cfg.EarlyRefresh = c.stale, 1
	case 1:
		cfg.ErrorTTL, cfg.StaleIfError = errorTTL, c.stale
	case 2:
		cfg.StaleFor, cfg.SoftTimeout = c.stale, 150*time.Millisecond
	}
	c.group = redistest.Must(singleflight.New(c.rdb, cfg))(w.tb)
	w.ever = append(w.ever, c)
	return c
}

// permits is the handle of a kind of permits.
func (c *client) permits(kind string) *semaphore.Semaphore {
	if kind == "tot" {
		return c.total
	}
	return c.sem
}

// living lists the clients that there are.
func (w *world) living() []*client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.fleet), func(c *client) bool { return c == nil })
}

// die ends a client as a crash would: from now on it believes nothing.
func (w *world) die(c *client) {
	w.mu.Lock()
	c.dead.Store(true)
	w.fleet[c.number] = nil
	w.leases.died(c)
	w.flights.died(c)
	w.mu.Unlock()
	c.line.die()
	c.kill()
	_ = c.rdb.Close()
}

// shut closes a client's handles, which must succeed in time on a good network.
func (w *world) shut(c *client) {
	began := time.Now()
	good := w.good(c, began)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for what, closer := range map[string]interface{ Close(context.Context) error }{"semaphore": c.sem, "family with a total": c.total, "mutex": c.mtx, "group": c.group} {
		err := closer.Close(ctx)
		w.failIf(err != nil && !c.dead.Load() && !w.over(), "L2", "client %d: %s.Close: %v", c.number, what, err)
	}
	if d := time.Since(began); d > 15*time.Second && good && w.calm(began, time.Now()) && !w.over() {
		w.fail("L2", "client %d: closing took %v", c.number, d)
	}
	if good && !c.dead.Load() && w.calm(began, time.Now()) && !w.over() {
		w.wantNothingOf(c)
	}
	_ = c.rdb.Close()
	c.line.cut() // go-redis loses a connection if a hook panics while it is set up
}
