//go:build unix

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

const (
	nearTorture = 300 * time.Millisecond // NearFor
	boardKeys   = 16
)

// A board is memory that all processes of a test share. For each key it has the present version at the
// origin, and the latest version before which an invalidation has returned: each call that begins later
// gets that one or a newer one.
type board [][2]atomic.Uint64

func openBoard(path string) board {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if err = file.Truncate(16 * boardKeys); err != nil {
		panic(err)
	}
	mem, err := syscall.Mmap(int(file.Fd()), 0, 16*boardKeys, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return unsafe.Slice((*[2]atomic.Uint64)(unsafe.Pointer(&mem[0])), boardKeys)
}

// nearRole is what a process of the torture does.
type nearRole struct {
	Addrs         []string // more than one: a Cluster
	Family, Board string
	NearFor       time.Duration
	Schema        uint32
	Writes        int  // it writes keys with this remainder by two; -1 = it reads
	Puts          bool // its writes are also Puts, which need answers
	Caching       bool // a control: its client caches
}

func near(r *nearRole) { r.NearFor = nearTorture }

func (r nearRole) open() *singleflight.Group[string] {
	o := &redis.UniversalOptions{Addrs: r.Addrs, ReadTimeout: 500 * time.Millisecond, DialTimeout: 500 * time.Millisecond, PoolSize: 20}
	rdb := redis.NewUniversalClient(o)
	if r.Caching {
		simple := o.Simple()
		simple.Protocol, simple.ClientSideCacheConfig = 3, &redis.ClientSideCacheConfig{MaxEntries: 1000}
		rdb = redis.NewClient(simple)
	}
	g, err := singleflight.New(rdb, singleflight.Config[string]{
		Name: r.Family, TTL: time.Minute, NearFor: r.NearFor, Schema: r.Schema, LeaseTTL: time.Second,
	})
	if err != nil {
		panic(err)
	}
	return g
}

// nearCount is what a process did.
type nearCount struct {
	Reads, Near, Stale, Writes, Failed int64
	First                              string // the first stale read
}

func (c *nearCount) add(d nearCount) {
	c.Reads, c.Near, c.Stale, c.Writes, c.Failed = c.Reads+d.Reads, c.Near+d.Near, c.Stale+d.Stale, c.Writes+d.Writes, c.Failed+d.Failed
	if c.First == "" {
		c.First = d.First
	}
}

func init() { redistest.RegisterChild("near torture", nearChild) }

// nearChild reads or writes until its input ends, and says what it did.
func nearChild(args []string) int {
	var r nearRole
	if err := json.Unmarshal([]byte(args[0]), &r); err != nil {
		panic(err)
	}
	b, g := openBoard(r.Board), r.open()
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var mu sync.Mutex
	var sum nearCount
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				if r.Writes >= 0 {
					mu.Lock() // each key has one goroutine that writes it, because of two Puts the later one stays
					sum.add(r.write(ctx, b, g))
					mu.Unlock()
					time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
					continue
				}
				n := read(ctx, b, g)
				mu.Lock()
				sum.add(n)
				mu.Unlock()
				time.Sleep(50 * time.Microsecond)
			}
		})
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
	}
	stop()
	all.Wait()
	end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = g.Close(end) // over a proxy that may be cut
	sum.Near = g.Stats().NearHits
	out, _ := json.Marshal(sum)
	fmt.Printf("done %s\n", out)
	return 0
}

// read reads the keys, the first ones far more often than the last ones.
func read(ctx context.Context, b board, g *singleflight.Group[string]) (n nearCount) {
	for range 256 {
		key := int(boardKeys * rand.Float64() * rand.Float64() * rand.Float64())
		floor := b[key][1].Load()
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		text, err := g.Do(soon, strconv.Itoa(key), func(context.Context) (string, error) {
			return strconv.FormatUint(b[key][0].Load(), 10), nil
		})
		cancel()
		if err != nil {
			n.Failed++
			time.Sleep(time.Millisecond)
			continue
		}
		n.Reads++
		if got, err := strconv.ParseUint(text, 10, 64); err != nil || got < floor {
			n.Stale++
			n.First = fmt.Sprintf("key %d: version %q after an invalidation of version %d, at %v", key, text, floor, time.Now())
		}
	}
	return n
}

// write changes a key at the origin, and then invalidates it or puts the new version.
func (r nearRole) write(ctx context.Context, b board, g *singleflight.Group[string]) nearCount {
	key := 2*rand.IntN(boardKeys/2) + r.Writes
	version := b[key][0].Add(1)
	var err error
	if r.Puts && rand.IntN(2) == 0 {
		err = g.Put(ctx, strconv.Itoa(key), strconv.FormatUint(version, 10))
	} else {
		err = g.Invalidate(ctx, strconv.Itoa(key))
	}
	if err != nil {
		return nearCount{Failed: 1}
	}
	b[key][1].Store(version)
	return nearCount{Writes: 1}
}

// tortured is a fleet of processes that read and write the same keys.
type tortured struct {
	*testing.T
	role  nearRole // what all have in common
	end   time.Time
	busy  sync.WaitGroup
	mu    sync.Mutex
	total map[string]*nearCount // by kind of process
}

func newTortured(t *testing.T, addrs ...string) *tortured {
	role := nearRole{Addrs: addrs, Family: redistest.Name(t), Board: filepath.Join(t.TempDir(), "board"), Writes: -1}
	return &tortured{T: t, role: role, total: map[string]*nearCount{}, end: time.Now().Add(harness.Soak(t, 5*time.Second))}
}

// start starts a process.
func (x *tortured) start(change func(*nearRole)) *redistest.Child {
	role := x.role
	change(&role)
	c := redistest.StartChild(x, "near torture", string(redistest.Must(json.Marshal(role))(x)))
	c.Expect("ready")
	return c
}

// stop stops a process, and adds what it did.
func (x *tortured) stop(kind string, c *redistest.Child) {
	c.CloseInput()
	line, err := c.LineWithin(20 * time.Second)
	var n nearCount
	if err == nil {
		err = json.Unmarshal([]byte(line[len("done "):]), &n)
	}
	if err != nil {
		x.Errorf("%s says %q: %v", kind, line, err)
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
		for trouble != nil && time.Now().Before(x.end) {
			time.Sleep(time.Duration(100+rand.IntN(500)) * time.Millisecond)
			c = trouble(c)
		}
		time.Sleep(time.Until(x.end))
		x.stop(kind, c)
	})
}

// judge reports stale reads, and controls that show none: then the torture would not show them either.
func (x *tortured) judge(controls ...string) {
	x.Helper()
	x.busy.Wait()
	for kind, n := range x.total {
		x.Logf("%-28s %10d reads, %10d of them in memory, %8d stale, %6d invalidations, %6d calls failed", kind, n.Reads, n.Near, n.Stale, n.Writes, n.Failed)
		isControl := slices.Contains(controls, kind)
		redistest.Check(x, isControl == (n.Stale > 0), "%s: %d stale reads of %d: %s", kind, n.Stale, n.Reads, n.First)
	}
	reader, writer := x.total["near"], x.total["writer"]
	redistest.Check(x, reader.Near >= 50 && writer.Writes >= 20, // each of these reads might have been stale
		"the torture was none: %+v, %+v", reader, writer)
}

// Readers, writers and controls share keys while connections lose, delay and end what they carry, and readers are
// stopped, killed and restarted. No reader with copies in memory gets what an invalidation that had returned before
// was to drop. The controls, which keep values without read leases, do. LEASEHOLD_SOAK makes it longer.
func TestNearTorture(t *testing.T) {
	srv := redistest.StartServer(t, redistest.Newest(t))
	x := newTortured(t, srv.Addr())
	badly := func(kind string, change func(*nearRole)) {
		p := redistest.NewProxy(t, srv.Addr())
		x.member(kind, func(r *nearRole) { change(r); r.Addrs = []string{p.Addr()} }, func(c *redistest.Child) *redistest.Child { disturb(p); return c })
	}
	x.member("near", near, nil)
	x.member("near, restarted", near, func(c *redistest.Child) *redistest.Child { x.stop("near, restarted", c); return x.start(near) })
	x.member("near, killed", near, func(c *redistest.Child) *redistest.Child { c.Kill(); c.Wait(); return x.start(near) })
	x.member("near, stopped", near, func(c *redistest.Child) *redistest.Child {
		c.Pause()
		time.Sleep(time.Duration(rand.Int64N(int64(2 * nearTorture))))
		c.Resume()
		return c
	})
	badly("near, on a bad network", near)
	x.member("near, another version", func(r *nearRole) { near(r); r.Schema = 7 }, nil)
	x.member("GET", func(*nearRole) {}, nil)
	late := redistest.NewProxy(t, srv.Addr())
	late.Delay(0, 50*time.Millisecond) // on a busy machine, invalidations that arrive at once may find no stale read
	x.member("client-side caching", func(r *nearRole) { r.Caching, r.Addrs = true, []string{late.Addr()} }, nil)
	x.member("writer", func(r *nearRole) { near(r); r.Writes, r.Puts = 0, true }, nil)
	badly("writer, on a bad network", func(r *nearRole) { r.Writes = 1 })
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
	x.member("writer", func(r *nearRole) { near(r); r.Writes = 0 }, nil)
	x.member("writer, without copies", func(r *nearRole) { r.Writes = 1 }, nil)
	node := func(key int) (string, *redistest.Server) {
		name := harness.Part(harness.Loads, x.role.Family, strconv.Itoa(key), "near")
		return name, cluster.NodeFor(name)
	}
	for n := 0; time.Now().Before(x.end); n++ {
		name, from := node(n % 3)
		if _, to := node(5 + n%5); from != to {
			cluster.MoveSlot(name, to)
		}
		time.Sleep(300 * time.Millisecond)
	}
	x.judge()
}
