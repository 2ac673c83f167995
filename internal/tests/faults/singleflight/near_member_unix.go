//go:build unix

package singleflight

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// nearRole is what a process of the torture does.
type nearRole struct {
	Addrs   []string // more than one: a Cluster
	Family  string
	Board   string
	NearFor time.Duration
	Schema  uint32
	Writes  int  // it writes keys with this remainder by two; -1 = it reads
	Puts    bool // its writes are also Puts, which need answers
	Caching bool // a control: its client caches
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
	var role nearRole
	if err := json.Unmarshal([]byte(args[0]), &role); err != nil {
		panic(err)
	}
	b, err := openBoard(role.Board)
	if err != nil {
		panic(err)
	}
	m := &nearMember{role: role, board: b}
	m.open()
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				if role.Writes >= 0 {
					m.write(ctx)
				} else {
					m.read(ctx)
				}
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
	_ = m.group.Close(end) // over a proxy that may be cut
	out, _ := json.Marshal(nearCount{
		Reads: m.reads.Load(), Near: m.group.Stats().NearHits, Stale: m.stale.Load(), Writes: m.writes.Load(), Failed: m.failed.Load(), First: m.first,
	})
	fmt.Printf("done %s\n", out)
	return 0
}

type nearMember struct {
	role  nearRole
	board *board
	group *singleflight.Group[string]

	reads, stale, writes, failed atomic.Int64

	mu    sync.Mutex
	first string
}

func (m *nearMember) open() {
	o := &redis.UniversalOptions{Addrs: m.role.Addrs, ReadTimeout: 500 * time.Millisecond, DialTimeout: 500 * time.Millisecond, PoolSize: 20}
	var rdb redis.UniversalClient
	if m.role.Caching {
		simple := o.Simple()
		simple.Protocol, simple.ClientSideCacheConfig = 3, &redis.ClientSideCacheConfig{MaxEntries: 1000}
		rdb = redis.NewClient(simple)
	} else {
		rdb = redis.NewUniversalClient(o)
	}
	g, err := singleflight.New(rdb, singleflight.Config[string]{
		Name: m.role.Family, TTL: time.Minute, NearFor: m.role.NearFor, Schema: m.role.Schema, LeaseTTL: time.Second,
	})
	if err != nil {
		panic(err)
	}
	m.group = g
}

// read reads the keys, the first ones far more often than the last ones.
func (m *nearMember) read(ctx context.Context) {
	for range 256 {
		key := int(float64(boardKeys) * rand.Float64() * rand.Float64() * rand.Float64())
		floor := m.board.floor(key).Load()
		got, err := m.get(ctx, key)
		if err != nil {
			m.failed.Add(1)
			time.Sleep(time.Millisecond)
			continue
		}
		m.reads.Add(1)
		if got < floor {
			m.stale.Add(1)
			m.mu.Lock()
			if m.first == "" {
				m.first = fmt.Sprintf("key %d: version %d after an invalidation of version %d, at %v", key, got, floor, time.Now())
			}
			m.mu.Unlock()
		}
	}
	time.Sleep(50 * time.Microsecond)
}

func (m *nearMember) get(ctx context.Context, key int) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	text, err := m.group.Do(ctx, strconv.Itoa(key), func(context.Context) (string, error) {
		return strconv.FormatUint(m.board.origin(key).Load(), 10), nil
	})
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 10, 64)
}

// write changes a key at the origin, and then invalidates it or puts the new version. Each key
// has one goroutine that writes it, because of two Puts the later one stays.
func (m *nearMember) write(ctx context.Context) {
	key := 2*rand.IntN(boardKeys/2) + m.role.Writes
	m.mu.Lock()
	version := m.board.origin(key).Add(1)
	var err error
	if m.role.Puts && rand.IntN(2) == 0 {
		err = m.group.Put(ctx, strconv.Itoa(key), strconv.FormatUint(version, 10))
	} else {
		err = m.group.Invalidate(ctx, strconv.Itoa(key))
	}
	m.mu.Unlock()
	if err != nil {
		m.failed.Add(1)
	} else {
		m.writes.Add(1)
		m.board.raise(key, version)
	}
	time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
}
