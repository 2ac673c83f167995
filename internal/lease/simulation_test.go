package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A fleet on a bad network, minutes of it in a second, from one seed: the caps
// hold, tokens rise, everybody is served in the end, and nothing is left.
//
// LEASEHOLD_SEED runs one schedule again (goroutines of one instant may still
// run in another order), LEASEHOLD_SEEDS more of them.
func TestSimulation(t *testing.T) {
	first, seeds := uint64(time.Now().UnixNano()), 3
	if s, err := strconv.ParseUint(os.Getenv("LEASEHOLD_SEED"), 10, 64); err == nil {
		first, seeds = s, 1
	}
	if n, err := strconv.Atoi(os.Getenv("LEASEHOLD_SEEDS")); err == nil {
		seeds = n
	}
	for i := range seeds {
		seed := first + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		})
		if t.Failed() {
			t.Fatalf("again with LEASEHOLD_SEED=%d", seed)
		}
	}
}

// hold is what a client believed to hold, and from when to when.
type hold struct {
	key      string
	permits  int
	token    uint64
	from, to time.Time
}

type fleet struct {
	*testing.T
	mu    sync.Mutex
	holds []hold
	tally map[string]int
}

func (f *fleet) note(h hold, outcome string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.key != "" {
		f.holds = append(f.holds, h)
	}
	f.tally[outcome]++
}

// What the simulation runs: two keys of a semaphore, and of a mutex.
const (
	simClients = 3
	simWorkers = 4
	simLimit   = 3
	simTTL     = 3 * time.Second
	simSpan    = time.Minute
)

func simulate(t *testing.T, seed uint64) {
	mini, client := redistest.Bubble(t)
	direct := client()
	net := redistest.NewNetwork(seed, mini.Dial)
	f := &fleet{T: t, tally: map[string]int{}}
	end := time.Now().Add(simSpan)
	net.SetBad(true)
	var handles []*Manager
	var workers sync.WaitGroup
	for c := range simClients {
		rdb := client(func(o *redis.Options) { o.Dialer = net.Dial })
		for _, fenced := range []bool{true, false} {
			cfg := Config{Package: "sim", Family: keys.Family{Kind: keys.Semaphore, Name: "sim"}, TTL: simTTL}
			if fenced {
				cfg.Family.Kind, cfg.Fenced = keys.Mutex, true
			}
			m, err := New(rdb, cfg)
			if err != nil {
				t.Fatal(err)
			}
			handles = append(handles, m)
			for w := range simWorkers {
				rng := rand.New(rand.NewPCG(seed, uint64(c*100+w*2)))
				workers.Go(func() {
					for time.Now().Before(end) {
						f.work(m, rng)
					}
				})
			}
		}
	}
	chaos := rand.New(rand.NewPCG(seed, 99))
	for time.Now().Before(end) {
		time.Sleep(time.Duration(chaos.IntN(4000)) * time.Millisecond)
		switch chaos.IntN(6) {
		case 0:
			net.CutSome(1)
		case 1, 2:
			net.CutSome(0.3)
		case 3:
			if err := direct.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	net.SetBad(false)
	workers.Wait()
	// L1: nobody is kept waiting now that all is well.
	for _, m := range handles {
		l := new(Lease)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := m.Acquire(ctx, m.attempt("k0", 1, true), l); err != nil {
			t.Errorf("after the faults: %v", err)
		} else if err := l.Release("release"); err != nil {
			t.Errorf("after the faults: %v", err)
		}
		cancel()
		if d := time.Since(began); d > simTTL+2*time.Second+voidAfter {
			t.Errorf("after the faults an acquire took %v", d)
		}
	}
	for _, m := range handles {
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(simTTL + voidAfter + time.Second)
	for _, key := range mini.Keys() {
		if part := key[len(key)-5:]; part != "fence" {
			t.Errorf("%s is left", key)
		}
	}
	f.check()
	t.Logf("%d holds, %v", len(f.holds), f.tally)
}

func (m *Manager) attempt(key string, permits int, wait bool) Attempt {
	a := Attempt{Op: "acquire", Key: key, Permits: permits, Limit: simLimit, Wait: wait}
	if m.cfg.Fenced {
		a.Permits, a.Limit = 1, 1
	}
	return a
}

// work is one turn of a worker: take, hold, give back, each in one of many ways.
func (f *fleet) work(m *Manager, rng *rand.Rand) {
	a := m.attempt(fmt.Sprint("k", rng.IntN(2)), 1+rng.IntN(simLimit)*rng.IntN(2), rng.IntN(3) > 0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(8000))*time.Millisecond)
	if rng.IntN(3) == 0 {
		ctx = context.WithoutCancel(ctx)
	}
	defer cancel()
	l := new(Lease)
	err := m.Acquire(ctx, a, l)
	from := time.Now()
	switch {
	case err == nil:
	case errors.Is(err, leasehold.ErrBusy), errors.Is(err, leasehold.ErrUnavailable):
		f.note(hold{}, "not acquired")
		time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
		return
	default:
		f.Errorf("acquire: %v", err)
		return
	}
	span := time.Duration(rng.IntN(100)) * time.Millisecond
	if rng.IntN(8) == 0 {
		span = time.Duration(rng.IntN(2)+1) * simTTL
	}
	// The work stops when the lease does, not when the acquiring ctx does.
	lost := make(chan struct{})
	stop := context.AfterFunc(l.Context(), func() {
		if !errors.Is(context.Cause(l.Context()), context.DeadlineExceeded) {
			close(lost)
		}
	})
	outcome := "kept"
	select {
	case <-time.After(span):
	case <-lost:
		outcome = "lost"
	}
	stop()
	to, deadline := time.Now(), l.Deadline()
	if deadline.Before(to) {
		to = deadline // a context that ended with its parent does not tell of a loss
	}
	switch err := l.Release("release"); {
	case err == nil, errors.Is(err, leasehold.ErrUnavailable):
	case errors.Is(err, leasehold.ErrLost):
		outcome += ", then ErrLost"
		// S4: nobody deletes keys here, so a lease is lost by its deadline only.
		if to.Before(deadline) {
			f.Errorf("lost %v before its deadline: %v", deadline.Sub(to), err)
		}
	default:
		f.Errorf("release: %v", err)
	}
	f.note(hold{key: string(m.cfg.Family.Kind) + a.Key, permits: a.Permits, token: l.Token(), from: from, to: to}, outcome)
}

// check sweeps over what all clients believed: S1 and S2.
func (f *fleet) check() {
	slices.SortFunc(f.holds, func(a, b hold) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
	last := map[string]uint64{}
	for i, h := range f.holds {
		inUse, limit := 0, simLimit
		if h.token != 0 {
			limit = 1
			if h.token <= last[h.key] {
				f.Errorf("%s: token %d was granted after %d", h.key, h.token, last[h.key])
			}
			last[h.key] = h.token
		}
		for _, o := range f.holds[:i+1] {
			if o.key == h.key && o.to.After(h.from) {
				inUse += o.permits
			}
		}
		if inUse > limit {
			f.Errorf("%s: %d permits in use at %v; the limit is %d", h.key, inUse, h.from, limit)
		}
	}
}
