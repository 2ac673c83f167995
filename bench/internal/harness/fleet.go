package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

type User struct {
	ID    int64
	Name  string
	Email string
	Roles []string
	Notes string
}

// Ada is a user with so many bytes of notes.
func Ada(notes int) User {
	return User{ID: 7, Name: "Ada Lovelace", Email: "ada@example.org", Roles: []string{"admin", "ops"}, Notes: strings.Repeat("n", notes)}
}

// Fetch returns the cached value of key, or that of load, which is then cached for an hour.
type Fetch func(key string, load func() (User, error)) (User, error)

// A Cache makes what fetches, and what closes it. lease bounds a load that is not renewed,
// where there is such a thing; 0 is the library's default.
type Cache func(rdb *redis.Client, lease time.Duration) (Fetch, func(), error)

// Singleflight is leasehold's, with the defaults.
func Singleflight(rdb *redis.Client, lease time.Duration) (Fetch, func(), error) {
	g, err := singleflight.New(rdb, singleflight.Config[User]{Name: "bench", TTL: time.Hour, LeaseTTL: lease})
	return func(key string, load func() (User, error)) (User, error) {
		return g.Do(context.Background(), key, func(context.Context) (User, error) { return load() })
	}, func() { _ = g.Close(context.Background()) }, err
}

// RegisterCallers registers the process of a [Fleet]: goroutines that share a client and ask
// one of the caches, or "ping", at the same time. To be called from an init function.
func RegisterCallers(caches map[string]Cache) {
	redistest.RegisterChild("bench-callers", func(args []string) int { return callers(caches, args) })
}

// callers has as arguments the server's URL, how many they are, how long a load takes, and
// the lease. A line of its input names the cache to ask, the key, and the time.
func callers(caches map[string]Cache, args []string) int {
	n := Value(strconv.Atoi(args[1]))
	takes, lease := Value(time.ParseDuration(args[2])), Value(time.ParseDuration(args[3]))
	o := Value(redis.ParseURL(args[0]))
	Pool(n)(o)
	rdb := redis.NewClient(o)
	open := map[string]Fetch{}
	for who, opener := range caches {
		get, stop, err := opener(rdb, lease)
		Must(err)
		defer stop()
		open[who] = get
		ask(get, n, 0, who+"-warm", time.Now()) // all have a connection and a cached value
	}
	ping(rdb, n, time.Now())
	fmt.Println("ready")
	return Serve(func(words []string) {
		var a answer
		if at := time.Unix(0, Value(strconv.ParseInt(words[2], 10, 64))); words[0] == "ping" {
			a = ping(rdb, n, at)
		} else {
			a = ask(open[words[0]], n, takes, words[1], at)
		}
		Must(json.NewEncoder(os.Stdout).Encode(a))
	})
}

// An answer is what a process tells, with times that all processes of the machine share.
type answer struct {
	Loads int           // calls of the loader
	Ended int64         // when the first of them ended, 0 = there was none; or when the ping was sent
	Got   []int64       // when each caller that did not load had the value
	Trip  time.Duration // of the ping
}

// ask lets n callers ask for a key. Its load takes so long.
func ask(get Fetch, n int, takes time.Duration, key string, at time.Time) (a answer) {
	want := Ada(20)
	var loads, ended atomic.Int64
	got := make([]int64, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			time.Sleep(time.Until(at))
			var mine atomic.Bool // a library may load on another goroutine
			u, err := get(key, func() (User, error) {
				mine.Store(true)
				loads.Add(1)
				time.Sleep(takes)
				ended.CompareAndSwap(0, Now())
				return want, nil
			})
			now := Now()
			if err == nil && u.Name != want.Name {
				err = errors.New("another value")
			}
			Must(err)
			if !mine.Load() {
				got[i] = now
			}
		})
	}
	all.Wait()
	got = slices.DeleteFunc(got, func(at int64) bool { return at == 0 })
	return answer{Loads: int(loads.Load()), Ended: ended.Load(), Got: got}
}

// ping is the least that n callers can wait for: one of them asks the server, once, and tells the others.
func ping(rdb *redis.Client, n int, at time.Time) answer {
	told := make(chan struct{})
	got := make([]int64, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-told
			got[i] = Now()
		})
	}
	time.Sleep(time.Until(at))
	began := time.Now()
	Must(rdb.Ping(context.Background()).Err())
	trip := time.Since(began)
	close(told)
	all.Wait()
	return answer{Ended: began.UnixNano(), Got: got, Trip: trip}
}

type Fleet struct {
	b         *testing.B
	processes []*redistest.Child
}

func NewFleet(b *testing.B, srv *Server, processes, callers int, load, lease time.Duration) *Fleet {
	b.Helper()
	return &Fleet{b, Children(b, processes, "bench-callers", srv.URL(), strconv.Itoa(callers), load.String(), lease.String())}
}

// round is what became of a key that all callers asked for at once.
type round struct {
	loads     int
	followers []time.Duration // until each that did not load had the value, since the first load had ended
	trips     []time.Duration // of the pings
}

// run lets all callers of the fleet ask for a key that nobody has asked for.
func (f *Fleet) run(who string) (r round) {
	f.b.Helper()
	at := time.Now().Add(50 * time.Millisecond) // all have read it by then
	for _, p := range f.processes {
		p.Send(fmt.Sprintf("%s cold-%s-%d %d", who, who, at.UnixNano(), at.UnixNano()))
	}
	answers := make([]answer, len(f.processes))
	var first int64
	for i, p := range f.processes {
		a := &answers[i]
		redistest.WantErr(f.b, json.Unmarshal([]byte(redistest.Must(p.Line())(f.b)), a))
		if a.Ended != 0 && (first == 0 || a.Ended < first) {
			first = a.Ended
		}
	}
	for _, a := range answers {
		since := first
		if who == "ping" { // of which each process has its own
			since = a.Ended
			r.trips = append(r.trips, a.Trip)
		}
		r.loads += a.Loads
		for _, at := range a.Got {
			r.followers = append(r.followers, time.Duration(at-since))
		}
	}
	return r
}

// Compare lets each of the caches run, in turn and b.N times, and reports of each the mean number of loads in the
// fleet, and the median, over the rounds, of the time until 99 % of the followers had the value, after the first load
// had ended: NAME-loads and NAME-p99-ms.
func (f *Fleet) Compare(who ...string) {
	f.b.Helper()
	rounds := make([][]round, len(who))
	for f.b.Loop() {
		for i, w := range who {
			rounds[i] = append(rounds[i], f.run(w))
		}
	}
	f.b.ReportMetric(0, "ns/op")
	for i, w := range who {
		var loads int
		var trips, followers []time.Duration // of the followers, 99 % of each round
		for _, r := range rounds[i] {
			loads += r.loads
			trips = append(trips, r.trips...)
			followers = append(followers, Percentile(r.followers, 99))
		}
		if w == "ping" {
			f.b.ReportMetric(Micros(Percentile(trips, 50))/1000, w+"-ms")
		} else {
			f.b.ReportMetric(float64(loads)/float64(len(rounds[i])), w+"-loads")
		}
		f.b.ReportMetric(Micros(Percentile(followers, 50))/1000, w+"-p99-ms")
	}
}

// Dial makes a child process's client of the server that url names.
func Dial(url string) *redis.Client { return redis.NewClient(Value(redis.ParseURL(url))) }

// Value is what a call returned that must not fail, in a child process.
func Value[T any](v T, err error) T {
	Must(err)
	return v
}

// Must ends a child process that has failed: the benchmark fails with it, since
// it waits for a line that does not come.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

// Serve is a child process's life: it hands each line of its input to do, in words, until the input ends.
func Serve(do func(words []string)) int {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		do(strings.Fields(lines.Text()))
	}
	return 0
}

// Now is the time that processes of one machine share, in ns.
func Now() int64 { return time.Now().UnixNano() }

// Children starts n processes of that function, each with these arguments, and
// returns when all have said that they are ready.
func Children(b testing.TB, n int, name string, args ...string) []*redistest.Child {
	b.Helper()
	all := make([]*redistest.Child, n)
	for i := range all {
		all[i] = redistest.StartChild(b, name, args...)
	}
	for _, c := range all {
		c.Expect("ready")
	}
	return all
}

// Delay is what the network between clients and server takes in each direction.
const Delay = 500 * time.Microsecond

func init() { redistest.RegisterChild("bench-network", networkChild) }

// networkChild is the process of a network: its arguments are the server's address and the
// delay in each direction.
func networkChild(args []string) int {
	runtime.GOMAXPROCS(8) // one of them sleeps most of the time
	relay := Value(redistest.StartRelay(args[0], Value(time.ParseDuration(args[1]))))
	fmt.Println("ready", relay.Addr())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt)
	<-ended
	return 0
}

// Behind is the same server behind a network with [Delay].
func (s *Server) Behind(b testing.TB) *Server { return s.Distant(b, 2*Delay) }

// Distant is the same server behind a network with a round trip, which keeps the order of
// what it carries, and carries whatever comes. It is a process of its own, so that it wakes
// in time while clients work. With a round trip of 0 it is the server itself.
func (s *Server) Distant(b testing.TB, roundTrip time.Duration) *Server {
	b.Helper()
	if roundTrip == 0 {
		return s
	}
	relay := redistest.StartChild(b, "bench-network", s.options.Addr, (roundTrip / 2).String())
	far := *s
	far.options.Addr = relay.Expect("ready")
	far.url = "redis://" + far.options.Addr + "/0"
	return &far
}
