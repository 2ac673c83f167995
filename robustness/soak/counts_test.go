package soak

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/fleet"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

type point struct {
	at    int64
	value float64
}

type curve struct {
	name    string
	worker  string  // whose it is; "" = all workers'
	allowed float64 // what a busy machine and the faults make of the medians, with something to spare
	size    float64 // of what one leak adds at least; 0 = it is not known
	points  []point
}

const mib = 1 << 20

// median is that of a quarter of the span, 0 to 3. A short run may have none.
func (c curve) median(span history.Span, quarter int64) (m float64, ok bool) {
	var all []float64
	for _, p := range c.points {
		if q := 4 * (p.at - span.From) / max(span.Length(), 1); q == quarter {
			all = append(all, p.value)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return all[len(all)/2], true
}

// soak counts what the workers have on their servers.
type soak struct {
	span          history.Span
	server, store *redis.Client
	servers       []curve // what count counts, in its order
}

func watch(t *testing.T, f *fleet.Fleet) *soak {
	server, store := f.Servers()
	dial := func(addr string) *redis.Client {
		rdb := redis.NewClient(&redis.Options{Addr: addr, ClientName: fleet.Watch, ReadTimeout: 20 * time.Second})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	return &soak{server: dial(server), store: dial(store), servers: []curve{
		{name: "connections for commands", allowed: 40, size: 1},
		{name: "connections for subscriptions", allowed: 6, size: 1},
		{name: "connections to the guarded values", allowed: 10, size: 1},
		{name: "channels", allowed: 6, size: 1},
		{name: "keys of all primitives", allowed: 20, size: 1},
		{name: "keys of guards", allowed: 3, size: 1},
		{name: "bytes of the server", allowed: 2 * mib},
	}}
}

func clients(t *testing.T, rdb *redis.Client, kind string) (n float64) {
	t.Helper()
	for line := range strings.Lines(redistest.Must(rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", kind).Text())(t)) {
		if !strings.Contains(line, " name="+fleet.Watch+" ") {
			n++
		}
	}
	return n
}

func size(t *testing.T, rdb *redis.Client) float64 {
	t.Helper()
	return float64(redistest.Must(rdb.DBSize(t.Context()).Result())(t))
}

func channels(t *testing.T, rdb *redis.Client) float64 {
	t.Helper()
	all := redistest.Must(rdb.PubSubChannels(t.Context(), "*").Result())(t)
	return float64(len(all) + len(redistest.Must(rdb.PubSubShardChannels(t.Context(), "*").Result())(t)))
}

func (s *soak) count(t *testing.T) {
	t.Helper()
	at := history.Now()
	info := s.server.InfoMap(t.Context(), "memory")
	var used float64
	redistest.Require(t, redistest.ErrorOf(fmt.Sscan(info.Item("Memory", "used_memory"), &used)), nil, "INFO memory: %v")
	for i, value := range []float64{
		clients(t, s.server, "normal"), clients(t, s.server, "pubsub"), clients(t, s.store, "normal"), channels(t, s.server),
		size(t, s.server), size(t, s.store), used,
	} {
		s.servers[i].points = append(s.servers[i].points, point{at, value})
	}
}

// curves are all that was counted of the workers that are never killed, and of the servers.
func (s *soak) curves(h *history.History) []curve {
	all := slices.Clone(s.servers)
	for i := range spared {
		place := fmt.Sprint("w", i+1)
		var goroutines, files, heap []point
		for _, e := range h.Events {
			if u := e.Usage; u != nil && e.Worker == place {
				goroutines = append(goroutines, point{e.At, float64(u.Goroutines)})
				files = append(files, point{e.At, float64(u.Files)})
				heap = append(heap, point{e.At, float64(u.Heap)})
			}
		}
		all = append(all,
			curve{name: "goroutines of " + place, worker: place, allowed: 10, size: 1, points: goroutines},
			// The faults close connections at the server's end; a leak keeps the file open.
			curve{name: "open files of " + place, worker: place, allowed: 20, size: 1, points: files},
			curve{name: "bytes of heap of " + place, worker: place, allowed: mib, points: heap})
	}
	return all
}

// nothingLeft waits until the servers have nothing any more but what is documented to last, and that with an
// end: the last tokens of mutexes, slots that are complete, and what the guards know.
func (s *soak) nothingLeft(t *testing.T) {
	t.Helper()
	var left []string
	var took time.Duration
	// Some of what ends by itself has 5 s; the rest is for a busy machine.
	for closed := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		left = append(lasting(t, s.server, "leasehold:mtx:", ":fence"), lasting(t, s.store, "leasehold:grd:", ":value", ":seen")...)
		n := clients(t, s.server, "normal") + clients(t, s.server, "pubsub") + clients(t, s.store, "normal")
		if m := channels(t, s.server); n+m > 0 {
			left = append(left, fmt.Sprint(n, " connections, ", m, " channels"))
		}
		took = time.Since(closed).Round(time.Millisecond)
		if len(left) == 0 || took > 30*time.Second {
			break
		}
	}
	s.count(t)
	if len(left) > 0 {
		t.Errorf("%v after the end there are left: %s", took, strings.Join(left, "; "))
		return
	}
	t.Logf("%v after the end there are only %v tokens of mutexes and %v keys of guards", took, size(t, s.server), size(t, s.store))
}

// lasting are the keys that should not be there, or that stay for longer than a day
// and the minute that guarded values are given.
func lasting(t *testing.T, rdb *redis.Client, kind string, parts ...string) (bad []string) {
	t.Helper()
	n := 0
	all := rdb.Scan(t.Context(), 0, "*", 1000).Iterator()
	for all.Next(t.Context()) {
		key := all.Val()
		n++
		ttl, err := rdb.PTTL(t.Context(), key).Result()
		switch {
		case err != nil:
			t.Fatalf("PTTL: %v", err)
		case ttl == -2: // it has just gone
		case strings.HasPrefix(key, kind) && strings.Contains(key, ":done:") && ttl > 0 && ttl <= fleet.SlotsKept:
		case !strings.HasPrefix(key, kind), !slices.ContainsFunc(parts, func(part string) bool { return strings.HasSuffix(key, part) }):
			bad = append(bad, fmt.Sprint(key, " for ", ttl))
		case ttl < 0 || ttl > 24*time.Hour+time.Minute:
			bad = append(bad, fmt.Sprint(key, " for ", ttl))
		}
	}
	redistest.Require(t, all.Err(), nil, "SCAN: %v")
	if expired := int(size(t, rdb)) - n; expired > 0 {
		bad = append(bad, fmt.Sprint(expired, " keys that will have expired in a moment"))
	}
	return bad
}
