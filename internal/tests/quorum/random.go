package quorum

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/mutex"
)

// A Run has faults strike a minority of the servers, one after the other.
type Run struct {
	Servers int
	Seed    uint64
	For     time.Duration
	Clocks  bool // the clocks of the servers differ by up to 3 s, and jump
}

// RunTTL is the TTL of the locks of a Run.
const RunTTL = 1500 * time.Millisecond

// Random does a Run on the newest installed version while four handles of one family compete. It needs real servers.
func Random(t *testing.T, r Run, compete func(ctx context.Context, dice *rand.Rand, handles []*mutex.Mutex)) {
	newestWith(t, r.Servers, r.Clocks, func(f *fleet) {
		in := newInjector(f, r)
		for i := range f.clocks {
			f.jump(i, in.dice)
		}
		var handles []*mutex.Mutex
		for range 4 {
			handles = append(handles, f.open(ttl(RunTTL)))
		}
		f.begin(handles[0])
		dice := rand.New(rand.NewPCG(r.Seed, 0))
		in.run(r.For, func(ctx context.Context) { compete(ctx, dice, handles) })
	})
}

// Faults has the faults of a Run strike while compete runs, for whatever library. Each call of clients
// makes a client for each server.
func Faults(t *testing.T, r Run, compete func(ctx context.Context, clients func() []redis.UniversalClient)) {
	newest(t, r.Servers, func(f *fleet) {
		in := newInjector(f, r)
		in.plain = true
		in.run(r.For, func(ctx context.Context) { compete(ctx, f.clients) })
	})
}

// run has faults strike for so long while compete runs, until all servers have recovered.
func (in *injector) run(span time.Duration, compete func(ctx context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { compete(ctx) })
	for end := time.Now().Add(span); time.Now().Before(end) && !in.f.Failed(); {
		in.strike()
	}
	in.mend()
	stop()
	all.Wait()
	in.f.Logf("faults: %v", in.done)
}
