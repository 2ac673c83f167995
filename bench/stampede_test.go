package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

const (
	stampedeProcesses = 8
	stampedeCallers   = 200 // of each process
	stampedeLoad      = 100 * time.Millisecond
)

func init() { redistest.RegisterChild("bench-stampede", stampedeChild) }

// stampeder is one process of a stampede.
type stampeder struct {
	rdb   *redis.Client
	group *singleflight.Group[user]
	inbox *redis.PubSub
}

// stampedeChild is a process that takes part in stampedes and, for the floor, has
// one bare subscription that wakes as many goroutines.
func stampedeChild(args []string) int {
	ctx := context.Background()
	rdb := harness.Dial(args[0])
	g, err := singleflight.New(rdb, singleflight.Config[user]{Name: "bench", TTL: time.Hour})
	harness.Must(err)
	p := &stampeder{rdb, g, rdb.Subscribe(ctx, "floor")}
	_, err = p.inbox.Receive(ctx)
	harness.Must(err)
	fmt.Println("ready")
	return harness.Serve(func(words []string) {
		switch words[0] {
		case "ask":
			at, err := strconv.ParseInt(words[2], 10, 64)
			harness.Must(err)
			p.ask(words[1], time.Unix(0, at))
		case "listen":
			p.listen()
		case "publish":
			at := harness.Now()
			harness.Must(rdb.Publish(ctx, "floor", strings.Repeat("v", 100)).Err())
			_, err := p.inbox.ReceiveMessage(ctx) // its own, which it would take for the next one's
			harness.Must(err)
			fmt.Println("published", at)
		}
	})
}

// ask lets all callers ask for key at the same moment. It prints how many loads
// that began here, when the last one's function returned, a PING's median while
// all wait, and when each caller had the value.
func (p *stampeder) ask(key string, at time.Time) {
	ctx := context.Background()
	var loads, returned atomic.Int64
	load := func(context.Context) (user, error) {
		loads.Add(1)
		time.Sleep(stampedeLoad)
		v := user{ID: 7, Name: "Ada Lovelace", Email: "ada@example.org", Roles: []string{"admin", "ops"}}
		returned.Store(harness.Now())
		return v, nil
	}
	var pings []time.Duration
	var all sync.WaitGroup
	all.Go(func() {
		// When the callers have asked, and before the load ends.
		for time.Sleep(time.Until(at.Add(stampedeLoad * 7 / 10))); time.Since(at) < stampedeLoad*95/100; time.Sleep(3 * time.Millisecond) {
			began := time.Now()
			harness.Must(p.rdb.Ping(ctx).Err())
			pings = append(pings, time.Since(began))
		}
	})
	times := make([]int64, stampedeCallers)
	for i := range times {
		all.Go(func() {
			time.Sleep(time.Until(at))
			v, err := p.group.Do(ctx, key, load)
			times[i] = harness.Now()
			if err == nil && v.ID != 7 {
				err = fmt.Errorf("got %+v", v)
			}
			harness.Must(err)
		})
	}
	all.Wait()
	fmt.Println("loads", loads.Load(), returned.Load())
	fmt.Println("ping", harness.Percentile(pings, 50).Nanoseconds())
	fmt.Println("times", words(times))
}

// listen has as many goroutines wait for one message, and prints when each ran.
func (p *stampeder) listen() {
	told := make(chan struct{})
	times := make([]int64, stampedeCallers)
	var all, asleep sync.WaitGroup
	for i := range times {
		asleep.Add(1)
		all.Go(func() {
			asleep.Done()
			<-told
			times[i] = harness.Now()
		})
	}
	asleep.Wait()
	fmt.Println("listening")
	_, err := p.inbox.ReceiveMessage(context.Background())
	harness.Must(err)
	close(told)
	all.Wait()
	fmt.Println("times", words(times))
}

func words(numbers []int64) string { return strings.Trim(fmt.Sprint(numbers), "[]") }

func numbers(b testing.TB, text string) (all []int64) {
	b.Helper()
	for _, word := range strings.Fields(text) {
		n := redistest.Must(strconv.ParseInt(word, 10, 64))(b)
		all = append(all, n)
	}
	return all
}

// 8 processes of 200 goroutines each ask for a value at the same moment that
// nobody has, and whose load takes 100 ms: loads a stampede, and how long after
// the loader's function returned the callers of the other seven processes have
// the value. Beside it a PING in the same processes while they wait, and the same
// number of goroutines that a bare subscriber in each process wakes when a
// message comes, from the call of PUBLISH: to wake 1,400 goroutines takes its
// time on a few cores.
func BenchmarkStampede(b *testing.B) {
	srv := harness.Start(b)
	all := harness.Children(b, stampedeProcesses, "bench-stampede", srv.URL())
	var loads, stampedes int
	var followers, floor, pings []time.Duration
	stampede := func() {
		// A key that no earlier run has left on a server that lives on.
		key := fmt.Sprint("cold-", harness.Now())
		at := time.Now().Add(20 * time.Millisecond).UnixNano()
		for _, c := range all {
			c.Send(fmt.Sprint("ask ", key, " ", at))
		}
		stampedes++
		times := make([][]int64, len(all))
		leader, published := -1, int64(0)
		for i, c := range all {
			did := numbers(b, c.Expect("loads"))
			loads += int(did[0])
			if did[0] > 0 && (leader < 0 || did[1] < published) {
				leader, published = i, did[1]
			}
			pings = append(pings, time.Duration(numbers(b, c.Expect("ping"))[0]))
			times[i] = numbers(b, c.Expect("times"))
		}
		redistest.CheckNow(b, leader >= 0, "nobody has loaded")
		followers = append(followers, after(published, leader, times)...)
	}
	bare := func(publisher int) {
		for i, c := range all {
			if i != publisher {
				c.Send("listen")
			}
		}
		for i, c := range all {
			if i != publisher {
				c.Expect("listening")
			}
		}
		time.Sleep(2 * time.Millisecond) // asleep in their reads
		all[publisher].Send("publish")
		published := numbers(b, all[publisher].Expect("published"))[0]
		times := make([][]int64, len(all))
		for i, c := range all {
			if i != publisher {
				times[i] = numbers(b, c.Expect("times"))
			}
		}
		floor = append(floor, after(published, publisher, times)...)
	}
	stampede() // scripts loaded, connections dialled
	loads, stampedes, followers, pings = 0, 0, nil, nil
	for b.Loop() {
		stampede()
		bare(stampedes % len(all))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(loads)/float64(stampedes), "loads")
	for _, p := range []float64{50, 99, 100} {
		b.ReportMetric(harness.Micros(harness.Percentile(followers, p))/1000, fmt.Sprintf("p%v-ms", p))
		b.ReportMetric(harness.Micros(harness.Percentile(floor, p))/1000, fmt.Sprintf("floor-p%v-ms", p))
	}
	b.ReportMetric(harness.Micros(harness.Percentile(pings, 50)), "ping-µs")
}

// after is how long after began the goroutines of all processes but one had it.
func after(began int64, but int, times [][]int64) (all []time.Duration) {
	for i := range times {
		if i == but {
			continue
		}
		for _, at := range times[i] {
			all = append(all, time.Duration(at-began))
		}
	}
	return all
}
