// Package networks_test holds the scenes of long round trips and of crowds: a server that is
// healthy and idle, a network between, and one process that holds much or asks for much. No
// lease may be lost, and no caller may fail whose turn could be had.
//
// `make test` runs short variants. LEASEHOLD_FULL=1 runs the full ones, which take about five
// minutes and want a machine that does nothing else:
//
//	LEASEHOLD_FULL=1 LEASEHOLD_REQUIRE_SERVERS=1 go test -v -timeout 20m ./internal/tests/networks
package networks_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/singleflight"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// full reports whether the full variants are to run.
func full() bool { return os.Getenv("LEASEHOLD_FULL") != "" }

// either returns the value for a full run, or the one for a short run.
func either[T any](inFull, inShort T) T {
	if full() {
		return inFull
	}
	return inShort
}

// A site is a server and clients with a network between.
type site struct {
	*testing.T
	far  func() redis.UniversalClient // behind the network
	near redis.UniversalClient

	network *redistest.Relay // of a single server
}

// eachSite runs a scene on a server and, if cluster is true, on a Cluster. A byte takes half of
// roundTrip in each direction.
func eachSite(t *testing.T, roundTrip time.Duration, cluster bool, scene func(s *site)) {
	versions := redistest.NeedServers(t)
	t.Run("one", func(t *testing.T) {
		server := redistest.StartServer(t, versions[0])
		network := redistest.NewRelay(t, server.Addr(), roundTrip/2)
		scene(&site{T: t, network: network, near: server.Client(), far: func() redis.UniversalClient {
			return client(t, &redis.UniversalOptions{Addrs: []string{network.Addr()}, PoolSize: 20})
		}})
	})
	if !cluster {
		return
	}
	t.Run("cluster", func(t *testing.T) {
		c := redistest.StartPatientCluster(t, versions[0])
		networks := sync.Map{} // *redistest.Relay by the address of a node
		for _, addr := range c.Addrs() {
			networks.Store(addr, redistest.NewRelay(t, addr, roundTrip/2))
		}
		scene(&site{T: t, near: c.Client(), far: func() redis.UniversalClient {
			return client(t, &redis.UniversalOptions{Addrs: c.Addrs(), PoolSize: 20, IsClusterMode: true, Dialer: dialThrough(&networks)})
		}})
	})
}

func client(t *testing.T, o *redis.UniversalOptions) redis.UniversalClient {
	rdb := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// newMutex returns a mutex of the family "net" that is closed with the test.
func (s *site) newMutex(rdb redis.UniversalClient, ttl time.Duration) *mutex.Mutex {
	s.Helper()
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: "net", TTL: ttl, KeepFor: harness.KeepFor(ttl)}))(s)
	s.Cleanup(func() {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		redistest.Expect(s, m.Close(ctx), nil, "Close: %v")
		s.Logf("Close took %v", time.Since(began).Round(time.Millisecond))
	})
	return m
}

// lockMany takes a lock on n keys at once.
func (s *site) lockMany(m *mutex.Mutex, prefix string, n int) []*mutex.Lock {
	s.Helper()
	all := make([]*mutex.Lock, n)
	if !s.atOnce(n, "Lock", func(i int) (err error) {
		all[i], err = m.Lock(s.Context(), fmt.Sprint(prefix, i))
		return err
	}) {
		s.FailNow()
	}
	return all
}

// unlockMany gives all back at once and reports how many were lost.
func (s *site) unlockMany(all []*mutex.Lock) {
	s.Helper()
	lost := 0
	for _, l := range all {
		if l.Context().Err() != nil {
			lost++
		}
	}
	s.atOnce(len(all), "Unlock", func(i int) error { return all[i].Unlock() })
	redistest.Expect(s, lost, 0, "%d of %d locks were lost", lost, len(all))
}

// atOnce makes n calls at once, and reports whether all have succeeded.
func (s *site) atOnce(n int, what string, call func(i int) error) bool {
	s.Helper()
	began := time.Now()
	var failed failures
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { failed.add(call(i)) })
	}
	all.Wait()
	s.Logf("%d calls of %s took %v", n, what, time.Since(began).Round(time.Millisecond))
	return !failed.report(s, what)
}

// pair takes a lock and gives it back.
func pair(ctx context.Context, m *mutex.Mutex, key string) error {
	l, err := m.Lock(ctx, key)
	if err != nil {
		return err
	}
	return l.Unlock()
}

// failures counts errors.
type failures struct {
	n     atomic.Int64
	first atomic.Pointer[error]
}

func (f *failures) add(err error) {
	if err != nil {
		f.n.Add(1)
		f.first.CompareAndSwap(nil, &err)
	}
}

func (f *failures) report(t testing.TB, what string) bool {
	t.Helper()
	if n := f.n.Load(); n > 0 {
		t.Errorf("%d calls of %s failed; the first: %v", n, what, *f.first.Load())
		return true
	}
	return false
}

// impatient makes n callers ask for a busy key, wait for as long as patience, give up, and ask
// again, until the function that it returns is called.
func (s *site) impatient(m *mutex.Mutex, n int, patience time.Duration) (stop func()) {
	holder := s.newMutex(s.near, time.Minute)
	redistest.Must(holder.Lock(s.Context(), "busy"))(s)
	going, end := context.WithCancel(s.Context())
	var all sync.WaitGroup
	var gaveUp atomic.Int64
	for range n {
		all.Go(func() {
			for going.Err() == nil {
				ctx, cancel := context.WithTimeout(s.Context(), patience)
				_, err := m.Lock(ctx, "busy")
				redistest.Check(s, err != nil && errors.Is(err, context.DeadlineExceeded), "Lock of a busy key: %v; want the error of its ctx", err)
				cancel()
				gaveUp.Add(1)
			}
		})
	}
	return func() {
		end()
		all.Wait()
		s.Logf("%d callers gave up %d times", n, gaveUp.Load())
	}
}

// Leases that are held over a long way, and given back at once: many, or beside callers that wait for a busy key and
// give up.
func TestHeldOverLongRoundTrips(t *testing.T) {
	for _, c := range []struct {
		roundTrip, ttl    time.Duration
		leases, impatient int
		patience          time.Duration
		cluster           bool
	}{
		{100 * time.Millisecond, 3 * time.Second, either(300, 100), either(500, 150), 250 * time.Millisecond, true},
		{300 * time.Millisecond, 3 * time.Second, 500, 0, 0, full()},
		// In a full run alone:
		{50 * time.Millisecond, 3 * time.Second, 300, 500, 150 * time.Millisecond, true},
		{100 * time.Millisecond, 10 * time.Second, 300, 500, 250 * time.Millisecond, true},
		{100 * time.Millisecond, 10 * time.Second, 300, 2000, 250 * time.Millisecond, true},
		{500 * time.Millisecond, 6 * time.Second, 2000, 0, 0, true},
		{200 * time.Millisecond, 10 * time.Second, 10000, 0, 0, false},
	}[:either(7, 2)] {
		t.Run(fmt.Sprintf("%d at %v beside %d", c.leases, c.roundTrip, c.impatient), func(t *testing.T) {
			eachSite(t, c.roundTrip, c.cluster, func(s *site) {
				m := s.newMutex(s.far(), c.ttl)
				held := s.lockMany(m, "held", c.leases)
				stop := s.impatient(m, c.impatient, c.patience)
				time.Sleep(either(12*time.Second, 5*time.Second))
				stop()
				s.unlockMany(held)
			})
		})
	}
}

// A crowd that comes at once, each caller with its own key.
func TestCrowdOverALongRoundTrip(t *testing.T) {
	for _, callers := range either([]int{5000, 20000}, []int{2000}) {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			eachSite(t, 100*time.Millisecond, false, func(s *site) {
				m := s.newMutex(s.far(), 30*time.Second)
				s.atOnce(callers, "Lock and Unlock", func(i int) error { return pair(s.Context(), m, fmt.Sprint("own", i)) })
			})
		})
	}
}

// A link of 10 Mbit/s, on which callers take and give back as fast as they can: their pipelines
// must not hold up the renewals.
func TestHeldOverANarrowLink(t *testing.T) {
	eachSite(t, 40*time.Millisecond, false, func(s *site) {
		m := s.newMutex(s.far(), 6*time.Second)
		held := s.lockMany(m, "held", either(2000, 200))
		s.network.Limit(10_000_000 / 8)
		going, end := context.WithCancel(s.Context())
		defer end()
		var all sync.WaitGroup
		var failed failures
		var pairs atomic.Int64
		for i := range either(2000, 300) {
			all.Go(func() {
				for going.Err() == nil {
					failed.add(pair(s.Context(), m, fmt.Sprint("own", i)))
					pairs.Add(1)
				}
			})
		}
		time.Sleep(either(20*time.Second, 7*time.Second))
		end()
		all.Wait()
		failed.report(s, "Lock and Unlock")
		s.Logf("%d pairs beside", pairs.Load())
		s.unlockMany(held)
	})
}

// dialThrough dials a Cluster's nodes through their networks.
func dialThrough(networks *sync.Map) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if relay, ok := networks.Load(addr); ok {
			addr = relay.(*redistest.Relay).Addr()
		}
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	}
}

// A crowd that comes at once for values of a cache, which have to be loaded first.
func TestCrowdOnACacheOverALongRoundTrip(t *testing.T) {
	eachSite(t, 100*time.Millisecond, true, func(s *site) {
		g, err := singleflight.New[string](s.far(), singleflight.Config[string]{Name: "net", TTL: time.Minute})
		redistest.CheckNow(s, err == nil, "New: %v", err)
		s.Cleanup(func() { _ = g.Close(context.Background()) })
		s.atOnce(either(20000, 3000), "Do and DoMany", func(i int) error {
			key := fmt.Sprint("key", i%200)
			value, err := "", error(nil)
			if i%4 == 3 { // with a key that others want, too
				var all map[string]string
				all, err = g.DoMany(s.Context(), []string{key, "key0"}, func(_ context.Context, keys []string) (map[string]string, error) {
					all := map[string]string{}
					for _, key := range keys {
						all[key] = "value of " + key
					}
					return all, nil
				})
				value = all[key]
			} else {
				value, err = g.Do(s.Context(), key, func(context.Context) (string, error) { return "value of " + key, nil })
			}
			if err == nil && value != "value of "+key {
				err = fmt.Errorf("%s has the value %q", key, value)
			}
			return err
		})
	})
}

// The first locks of a family that several new servers decide: the votes are asked for before the servers know
// that none of them has ever voted.
func TestFirstLocksOfAQuorum(t *testing.T) {
	version := redistest.Newest(t)
	s := &site{T: t}
	var rdbs []redis.UniversalClient
	for range 3 {
		network := redistest.NewRelay(t, redistest.StartServer(t, version).Addr(), either(150*time.Millisecond, 50*time.Millisecond))
		rdbs = append(rdbs, client(t, &redis.UniversalOptions{Addrs: []string{network.Addr()}, PoolSize: 20}))
	}
	m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: "net"}))(t)
	s.unlockMany(s.lockMany(m, "key", either(500, 50)))
	redistest.Expect(t, m.Close(t.Context()), nil, "Close: %v")
}
