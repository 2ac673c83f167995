package fleet

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

const child = "fleet worker"

func init() { redistest.RegisterChild(child, work) }

// worker is one process: clients of each primitive, each of them a goroutine.
type worker struct {
	spec
	sem   *semaphore.Semaphore
	total *semaphore.Semaphore // of a family with a total
	mtx   *mutex.Mutex
	group *singleflight.Group[string]
	guard *mutex.Guard

	last   atomic.Int64 // ID given to an operation
	finish atomic.Bool  // the parent has had enough

	mu  sync.Mutex
	out *json.Encoder
}

// work is a worker's life. Its argument is a spec; on its standard input it gets
// "go", "gauge" at times, and "finish"; on its output it writes events.
func work(args []string) int {
	w := &worker{out: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal([]byte(args[0]), &w.spec); err != nil {
		return fail(err)
	}
	orders := bufio.NewScanner(os.Stdin)
	if !orders.Scan() { // all begin together
		return 0
	}
	go w.obey(orders)
	go w.pulse()
	if w.Terms.Quiet {
		go w.probe()
	}
	w.gauge()

	rdb := redis.NewClient(&redis.Options{
		Addr: w.Addr, PoolSize: 30, MaxRetries: 1,
		DialTimeout: 500 * time.Millisecond, ReadTimeout: 400 * time.Millisecond, WriteTimeout: 400 * time.Millisecond,
	})
	defer rdb.Close()
	store := redis.NewClient(&redis.Options{Addr: w.Store})
	defer store.Close()
	if err := w.open(rdb, store); err != nil {
		return fail(err)
	}
	var clients sync.WaitGroup
	turns := []func(*client){
		(*client).useSemaphore, (*client).useSemaphore, (*client).useTotal, (*client).useTotal, (*client).useMutex, (*client).useMutex, (*client).useValue, (*client).useValue, (*client).useSlot,
	}
	if w.Operated {
		turns = append(turns, (*client).operate)
	}
	for i, turn := range turns {
		c := &client{worker: w, number: i + 1, rng: rand.New(rand.NewPCG(w.Seed, uint64(i)))}
		clients.Go(func() {
			for !w.finish.Load() {
				turn(c)
				time.Sleep(time.Duration(c.rng.IntN(12_000)) * time.Microsecond)
			}
		})
	}
	clients.Wait()
	w.lastRound()
	for _, closing := range []func(context.Context) error{w.sem.Close, w.total.Close, w.mtx.Close, w.group.Close} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		id := w.call(history.Event{Op: history.Close})
		w.returned(id, history.Event{}, closing(ctx))
		cancel()
	}
	_, _ = rdb.Close(), store.Close()
	w.settle()
	w.tell(history.Event{Kind: history.Done, At: history.Now()})
	return 0
}

// patience is how long a call may take once all faults are over. That it takes
// long is seen in the figures; this only keeps a test from hanging.
const patience = 30 * time.Second

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "worker:", err)
	return 1
}

func (w *worker) open(rdb, store *redis.Client) error {
	var errs [5]error
	ttl := w.Terms.TTL
	local := []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond}[w.Seed/3%3] // and in this
	keep := []time.Duration{0, ttl / 3}[w.Seed/9%2]
	w.sem, errs[0] = semaphore.New(rdb, semaphore.Config{Name: w.Family, Limit: w.Terms.Limit, TTL: ttl, LocalFor: local, KeepFor: keep})
	w.total, errs[1] = semaphore.New(rdb, semaphore.Config{
		Name: w.Family, Limit: w.Terms.Limit, Total: w.Terms.Total, TTL: ttl,
		ShareFor: func(key string) int { return 1 + int(key[1]-'0') },
	})
	w.mtx, errs[2] = mutex.New(rdb, mutex.Config{Name: w.Family, TTL: ttl, LocalFor: local, KeepFor: keep})
	w.guard, errs[3] = mutex.NewGuard(store, mutex.GuardConfig{Name: w.Family})
	cfg := singleflight.Config[string]{Name: w.Family, TTL: valueTTL, LeaseTTL: ttl}
	switch w.Seed % 3 { // processes of one fleet may differ in this
	case 1:
		cfg.StaleFor = 200 * time.Millisecond
	case 2:
		cfg.EarlyRefresh = 1
	}
	w.group, errs[4] = singleflight.New(rdb, cfg)
	return errors.Join(errs[:]...)
}

// lastRound uses every key until that has succeeded once more: no fault strikes
// any longer, but the machine may stand still for a moment.
func (w *worker) lastRound() {
	till := time.Now().Add(patience)
	var all sync.WaitGroup
	for i, key := range Keys() {
		c := &client{worker: w, number: 100 + i, final: true, rng: rand.New(rand.NewPCG(w.Seed, uint64(100+i)))}
		all.Go(func() {
			for c.use(key) != nil && time.Now().Before(till) {
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// pulse tells when this process did not run for a while.
func (w *worker) pulse() {
	const beat, missed = 2 * time.Millisecond, 10 * time.Millisecond
	for last := history.Now(); ; {
		time.Sleep(beat)
		now := history.Now()
		if now-last > int64(missed) {
			w.tell(history.Event{Kind: history.Stall, At: last, Until: now})
		}
		last = now
	}
}

// probe tells when a plain client of the server has no answer for a while: the server does not run,
// or the parent with its proxies. Under faults that no worker should notice, that excuses the workers.
func (w *worker) probe() {
	const beat, slow = 5 * time.Millisecond, 20 * time.Millisecond
	rdb := redis.NewClient(&redis.Options{Addr: w.Addr})
	for answered := history.Now(); ; time.Sleep(beat) {
		err := rdb.Ping(context.Background()).Err()
		now := history.Now()
		if now-answered > int64(slow) {
			w.tell(history.Event{Kind: history.Stall, Worker: "server", At: answered, Until: now})
		}
		if err == nil {
			answered = now
		}
	}
}

// tell writes an event at once: what a killed process has done is known.
func (w *worker) tell(e history.Event) {
	e.Worker = cmp.Or(e.Worker, w.Worker)
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(e) // a parent that does not read any more is gone
}

func (w *worker) call(e history.Event) int {
	e.Kind, e.ID, e.At = history.Call, int(w.last.Add(1)), history.Now()
	w.tell(e)
	return e.ID
}

func (w *worker) returned(id int, e history.Event, err error) {
	e.Kind, e.ID, e.At = history.Return, id, history.Now()
	if e.Class = class(err); err != nil {
		e.Text = err.Error()
	}
	w.tell(e)
}

// watch tells when ctx ends by itself. What it returns ends the watch.
func (w *worker) watch(id int, ctx context.Context, deadline func() time.Time) func() bool {
	return context.AfterFunc(ctx, func() {
		e := history.Event{Kind: history.Ended, ID: id, At: history.Now(), Text: fmt.Sprint(context.Cause(ctx))}
		if deadline != nil {
			e.Deadline = history.At(deadline())
		}
		w.tell(e)
	})
}

// classes are those of errors. The first that matches counts.
var classes = []struct {
	is    error
	class string
}{
	{context.Canceled, history.Timeout},
	{context.DeadlineExceeded, history.Timeout},
	{leasehold.ErrFenced, history.Fenced},
	{leasehold.ErrReleased, history.Released},
	{leasehold.ErrBusy, history.Busy},
	{leasehold.ErrUnavailable, history.Unavailable},
	{errGaveUp, history.LoadFailed},
	{leasehold.ErrNoLease, history.NoLease},
	{leasehold.ErrRevoked, history.Revoked},
	{leasehold.ErrLost, history.Lost},
}

func class(err error) string {
	if err == nil {
		return history.OK
	}
	for _, c := range classes {
		if errors.Is(err, c.is) || c.is == errGaveUp && strings.Contains(err.Error(), errGaveUp.Error()) {
			return c.class
		}
	}
	return history.Other
}

// errGaveUp is how a loader fails that heeds its ctx. In other processes it is but a text.
var errGaveUp = errors.New("the loader gave up")

// Servers are the addresses of the server that the workers use, which they reach
// through their proxies, and of the one that keeps the guarded values.
func (f *Fleet) Servers() (server, store string) { return f.server.Addr(), f.store }

// Gauge has every worker tell what its process takes, which it does as soon as it
// can. That is for the moments between two strikes.
func (f *Fleet) Gauge() {
	for _, m := range f.workers {
		m.child.Send("gauge")
	}
}

// obey does what the parent says, until that is to finish or the parent is gone.
func (w *worker) obey(orders *bufio.Scanner) {
	for orders.Scan() && orders.Text() == "gauge" {
		w.gauge()
	}
	w.finish.Store(true)
}

func (w *worker) gauge() {
	// What waits to be finalised or lies in a sync.Pool goes with the second one.
	runtime.GC()
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	// What was forgotten to be closed counts here, even if the server has closed its end. Not every system can tell.
	files, _ := os.ReadDir("/proc/self/fd")
	w.tell(history.Event{Kind: history.Gauge, At: history.Now(), Usage: &history.Usage{
		Goroutines: runtime.NumGoroutine(), Files: len(files), Heap: int64(mem.HeapAlloc),
	}})
}

// settle tells a last time what the process takes, when everything is closed and
// all that ran for it has ended, or should have: a TTL and a second later, by
// beats, since a machine that stands still is no excuse to count too early.
func (w *worker) settle() {
	const own = 2 // this goroutine and the pulse: obey has ended
	const beat = 5 * time.Millisecond
	for left := (w.Terms.TTL + time.Second) / beat; left > 0 && runtime.NumGoroutine() > own; left-- {
		time.Sleep(beat)
	}
	w.gauge()
}
