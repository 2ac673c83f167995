package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// A process dies with many waiters at the head of a queue. The lock reaches the living waiter behind them within 3 s
// of the death or 0.5 s of the release, whichever is later, in a number of calls that grows with one per 250 dead
// waiters. All times are the server's: the death is the last sign of life, and the token of the living waiter's lock
// is the time of its grant.
//
// A lock that is released up to 2 s after the death goes to a dead waiter, whose first
// term ends 2.9 s after the death at the latest. That is the longest way, for releases
// after 0.9 to 2 s: all dead waiters are then passed in the 0.1 s that are left.
func TestDeadWaitersInNumbers(t *testing.T) {
	all := redistest.NeedServers(t)
	const long = 1900 * time.Millisecond
	for _, c := range []struct {
		waiters  int
		releases []time.Duration // after the death
	}{
		{300, []time.Duration{0, long}},
		{1000, []time.Duration{0, long}},
		{5000, []time.Duration{0, long}},
		{10_000, []time.Duration{0, long, 2100 * time.Millisecond, 4 * time.Second}},
	} {
		for _, release := range c.releases {
			t.Run(fmt.Sprintf("%d, released after %v", c.waiters, release), func(t *testing.T) {
				for range 3 { // some are in time by 0.1 s, which a busy machine may take
					if passDeadWaiters(t, redistest.StartServer(t, all[0]), c.waiters, release) {
						return
					}
				}
				t.Error("too late, three times")
			})
		}
	}
}

// passDeadWaiters lets a process die with waiters, releases their lock so long after that, and waits until it has
// reached the living waiter behind them. It reports whether that was in time.
func passDeadWaiters(t *testing.T, srv *redistest.Server, waiters int, release time.Duration) (inTime bool) {
	rdb := srv.Client()
	h := redistest.Must(mutex.New(rdb, mutex.Config{Name: "dead"}))(t)
	defer h.Close(context.Background())
	first := redistest.Must(h.Lock(t.Context(), "k"))(t)
	dead := newDeadProcess(t, rdb, waiters)
	living := redistest.Must(mutex.New(srv.Client(), mutex.Config{Name: "dead"}))(t)
	defer living.Close(context.Background())
	locked := harness.Start(t, func() (*mutex.Lock, error) { return living.Lock(t.Context(), "k") })
	redistest.Eventually(t, "the living waiter", func() bool {
		dead.signs()
		last := rdb.ZRange(t.Context(), dead.names.Part("queue"), -1, -1).Val()
		return len(last) == 1 && !strings.HasPrefix(last[0], deadHandle)
	})
	signed := time.Now()
	dead.signs()
	// On a machine so busy that their signs take seconds, some count as dead already, and are gone.
	queued := rdb.ZCard(t.Context(), dead.names.Part("queue")).Val() - 1
	died := rdb.Time(t.Context()).Val()
	before := redistest.Commandstats(t, rdb)["evalsha"]
	time.Sleep(release - time.Since(died)) // the server runs on this machine
	released := rdb.Time(t.Context()).Val()
	redistest.WantErr(t, first.Unlock())
	l := locked.Got()
	granted, late := time.UnixMicro(int64(l.Token())), 2*redistest.Late(signed)
	calls := redistest.Commandstats(t, rdb)["evalsha"] - before
	redistest.NoError(t, l.Unlock())
	t.Logf("%d waiters: granted %v after the death, %v after the release, in %d calls; the machine was %v late", queued, granted.Sub(died), granted.Sub(released), calls, late)
	most := int64(waiters)/250 + 20
	redistest.Check(t, calls <= most, "%d calls; want at most %d", calls, most)
	return granted.Sub(died) <= 3*time.Second+late || granted.Sub(released) <= 500*time.Millisecond+late
}

// A process gives a lock back that a thousand dead waiters stand before. Its leave is
// sent again until the lock has reached the living waiter: nobody else calls.
func TestUnlockGoesOnBehindDeadWaiters(t *testing.T) {
	srv := redistest.StartServer(t, redistest.NeedServers(t)[0])
	rdb := srv.Client()
	h := redistest.Must(mutex.New(rdb, mutex.Config{Name: "dead"}))(t)
	defer h.Close(context.Background())
	l := redistest.Must(h.Lock(t.Context(), "k"))(t)
	dead := newDeadProcess(t, rdb, 1000)
	time.Sleep(2100 * time.Millisecond) // their signs of life are overdue
	living := dead.res.Request(protocol.Terms{Handle: strings.Repeat("l", 22), Seq: 1, Permits: 1, TTL: 30 * time.Second, Limit: 1})
	redistest.Must(dead.client.Do(t.Context(), living.Enter(protocol.EnterOptions{Wait: true})))(t)
	released := time.Now()
	redistest.WantErr(t, l.Unlock())
	redistest.Eventually(t, "the lock", func() bool {
		holders := rdb.ZRange(t.Context(), dead.names.Part("holders"), 0, -1).Val()
		return len(holders) == 1 && strings.HasPrefix(holders[0], strings.Repeat("l", 22))
	})
	redistest.AtMost(t, time.Since(released), 500*time.Millisecond, "the lock reached the living waiter after %v")
}

// deadProcess is what Redis knows of a process that died: its waiters.
type deadProcess struct {
	t       *testing.T
	client  *call.Client
	names   keys.Resource
	res     *permits.Resource
	waiters []protocol.Request
}

var deadHandle = strings.Repeat("d", 22)

// newDeadProcess queues the waiters of a process on the lock k.
func newDeadProcess(t *testing.T, rdb redis.UniversalClient, n int) *deadProcess {
	named := redistest.Must(keys.Family{Kind: keys.Mutex, Name: "dead"}.Resource("k"))(t)
	d := &deadProcess{t: t, client: redistest.Must(call.NewClient(rdb))(t), names: named, res: permits.NewResource(named, true, false)}
	for seq := range n {
		d.waiters = append(d.waiters, d.res.Request(protocol.Terms{Handle: deadHandle, Seq: uint64(seq) + 1, Permits: 1, TTL: 30 * time.Second, Limit: 1}))
	}
	var all sync.WaitGroup
	for some := range slices.Chunk(d.waiters, n/64+1) {
		all.Go(func() {
			for _, w := range some {
				redistest.NoError(t, redistest.ErrorOf(d.client.Do(context.Background(), w.Enter(protocol.EnterOptions{Wait: true}))))
			}
		})
	}
	entered := make(chan struct{})
	go func() { all.Wait(); close(entered) }()
	for { // on a busy machine the first would count as dead before the last are there
		select {
		case <-entered:
			return d
		case <-time.After(time.Second / 2):
			d.signs()
		}
	}
}

// signs gives the last sign of life of all its waiters.
func (d *deadProcess) signs() {
	for some := range slices.Chunk(d.waiters, protocol.MaxAsk) {
		redistest.NoError(d.t, redistest.ErrorOf(d.client.Do(context.Background(), d.res.Ask(some))))
	}
}
