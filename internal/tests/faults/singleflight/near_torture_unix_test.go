//go:build unix

package singleflight

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// tortured is a fleet of processes that read and write the same keys.
type tortured struct {
	t     *testing.T
	role  nearRole // what all have in common
	board *board
	mu    sync.Mutex
	total map[string]*nearCount // by kind of reader
	end   time.Time
	busy  sync.WaitGroup
}

func newTortured(t *testing.T, addrs ...string) *tortured {
	b, path := newBoard(t)
	return &tortured{
		t: t, board: b, role: nearRole{Addrs: addrs, Family: redistest.Name(t), Board: path, Writes: -1},
		total: map[string]*nearCount{}, end: time.Now().Add(harness.Soak(t, 5*time.Second)),
	}
}

// start starts a process.
func (x *tortured) start(change func(*nearRole)) *redistest.Child {
	role := x.role
	change(&role)
	c := redistest.StartChild(x.t, "near torture", string(redistest.Must(json.Marshal(role))(x.t)))
	c.Expect("ready")
	return c
}

// stop stops a process, and adds what it did.
func (x *tortured) stop(kind string, c *redistest.Child) {
	c.CloseInput()
	var n nearCount
	line, err := c.LineWithin(20 * time.Second)
	if err != nil {
		x.t.Errorf("%s: %v", kind, err)
		return
	}
	if err := json.Unmarshal([]byte(line[len("done "):]), &n); err != nil {
		x.t.Errorf("%s says %q: %v", kind, line, err)
		return
	}
	c.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.total[kind] == nil {
		x.total[kind] = &nearCount{}
	}
	x.total[kind].add(n)
}

// member runs a process until the end. trouble, if not nil, is called again and again.
func (x *tortured) member(kind string, change func(*nearRole), trouble func(c *redistest.Child) *redistest.Child) {
	x.busy.Go(func() {
		c := x.start(change)
		for time.Now().Before(x.end) {
			if trouble == nil {
				time.Sleep(time.Until(x.end))
				break
			}
			time.Sleep(time.Duration(100+rand.IntN(500)) * time.Millisecond)
			c = trouble(c)
		}
		x.stop(kind, c)
	})
}

// judge reports stale reads, and controls that show none: then the torture would not show them either.
func (x *tortured) judge(controls ...string) {
	x.t.Helper()
	x.busy.Wait()
	for kind, n := range x.total {
		x.t.Logf("%-28s %10d reads, %10d of them in memory, %8d stale, %6d invalidations, %6d calls failed", kind, n.Reads, n.Near, n.Stale, n.Writes, n.Failed)
	}
	for kind, n := range x.total {
		isControl := slices.Contains(controls, kind)
		redistest.Check(x.t, isControl == (n.Stale > 0), "%s: %d stale reads of %d: %s", kind, n.Stale, n.Reads, n.First)
	}
	if n := x.total["near"]; n.Near < n.Reads/2 || x.total["writer"].Writes < 20 {
		x.t.Errorf("the torture was none: %+v, %+v", n, x.total["writer"])
	}
}

const nearTorture = 300 * time.Millisecond // NearFor

func near(r *nearRole) { r.NearFor = nearTorture }

// Readers, writers and controls share keys while connections lose, delay and end what they carry, and readers are
// stopped, killed and restarted. No reader with copies in memory gets what an invalidation that had returned before
// was to drop. The controls, which keep values without read leases, do. LEASEHOLD_SOAK makes it longer.
func TestNearTorture(t *testing.T) {
	srv := redistest.StartServer(t, redistest.Newest(t))
	x := newTortured(t, srv.Addr())
	via := func(change func(*nearRole)) (*redistest.Proxy, func(*nearRole)) {
		p := redistest.NewProxy(t, srv.Addr())
		return p, func(r *nearRole) { change(r); r.Addrs = []string{p.Addr()} }
	}
	again := func(kind string, role func(*nearRole)) func(*redistest.Child) *redistest.Child {
		return func(c *redistest.Child) *redistest.Child { x.stop(kind, c); return x.start(role) }
	}
	x.member("near", near, nil)
	x.member("near, restarted", near, again("near, restarted", near))
	x.member("near, killed", near, func(c *redistest.Child) *redistest.Child { c.Kill(); c.Wait(); return x.start(near) })
	x.member("near, stopped", near, func(c *redistest.Child) *redistest.Child {
		c.Pause()
		time.Sleep(time.Duration(rand.Int64N(int64(2 * nearTorture))))
		c.Resume()
		return c
	})
	p, bad := via(near)
	x.member("near, on a bad network", bad, func(c *redistest.Child) *redistest.Child { disturb(p); return c })
	x.member("near, another version", func(r *nearRole) { near(r); r.Schema = 7 }, nil)
	x.member("GET", func(*nearRole) {}, nil)
	x.member("client-side caching", func(r *nearRole) { r.Caching = true }, nil)
	x.member("writer", func(r *nearRole) { near(r); r.Writes, r.Puts = 0, true }, nil)
	q, badly := via(func(r *nearRole) { r.Writes = 1 })
	x.member("writer, on a bad network", badly, func(c *redistest.Child) *redistest.Child { disturb(q); return c })
	x.judge("client-side caching")
}

// disturb does to a network, for a while, what networks do.
func disturb(p *redistest.Proxy) {
	for range 2 {
		switch rand.IntN(5) {
		case 0:
			p.DropMessages(true)
		case 1:
			p.CloseAll()
		case 2:
			p.Cut(rand.IntN(2) == 0, rand.IntN(2) == 0)
		case 3:
			p.Delay(time.Duration(rand.IntN(20))*time.Millisecond, time.Duration(rand.IntN(20))*time.Millisecond)
		case 4:
			p.Refuse(true)
		}
	}
	time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
	if p.Delay(0, 0); rand.IntN(2) == 0 {
		p.HealLate()
	} else {
		p.Heal()
	}
	p.DropMessages(false)
	p.Refuse(false)
}

// The same on a Cluster whose slots move.
func TestNearTortureOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.Newest(t))
	x := newTortured(t, cluster.Addrs()...)
	x.member("near", near, nil)
	x.member("near, another version", func(r *nearRole) { near(r); r.Schema = 7 }, nil)
	x.member("writer", func(r *nearRole) { near(r); r.Writes, r.Puts = 0, false }, nil)
	x.member("writer, without copies", func(r *nearRole) { r.Writes = 1 }, nil)
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: cluster.Addrs()})
	defer rdb.Close()
	for n := 0; time.Now().Before(x.end); n++ {
		key := harness.Part(harness.Loads, x.role.Family, []string{"0", "1", "2"}[n%3], "near")
		from, to := cluster.NodeFor(key), cluster.NodeFor(harness.Part(harness.Loads, x.role.Family, []string{"5", "6", "7", "8", "9"}[n%5], "near"))
		if from != to {
			cluster.MoveSlot(key, to)
		}
		time.Sleep(300 * time.Millisecond)
	}
	x.judge()
}
