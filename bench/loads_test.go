package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// loadLease is the lease of a load: short, so that some fit into a run, and long
// enough that no pause of a busy machine lasts as long.
const loadLease = 600 * time.Millisecond

func init() { redistest.RegisterChild("bench-loader", loaderChild) }

// loaderChild is a process of four callers. It prints when each load begins, and
// "done" when all callers have the value.
func loaderChild(args []string) int {
	g := harness.Value(singleflight.New(harness.Dial(args[0]), singleflight.Config[string]{Name: "bench", TTL: time.Hour, LeaseTTL: loadLease}))
	fmt.Println("ready")
	return harness.Serve(func(words []string) {
		takes := harness.Value(strconv.Atoi(words[1]))
		load := func(context.Context) (string, error) {
			fmt.Println("load", harness.Now())
			time.Sleep(time.Duration(takes) * time.Millisecond)
			return "value", nil
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				v, err := g.Do(context.Background(), words[0], load)
				if err == nil && v != "value" {
					err = fmt.Errorf("got %q", v)
				}
				harness.Must(err)
			})
		}
		all.Wait()
		fmt.Println("done")
	})
}

// begun reads what a child prints until its callers are done: when its loads began.
func begun(b testing.TB, c *redistest.Child) (loads []int64) {
	b.Helper()
	for {
		line := redistest.Must(c.Line())(b)
		if line == "done" {
			return loads
		}
		loads = append(loads, redistest.Must(strconv.ParseInt(line[len("load "):], 10, 64))(b))
	}
}

func init() { harness.RegisterCallers(map[string]harness.Cache{"leasehold": harness.Singleflight}) }

// Eight processes of 200 goroutines each ask at the same moment for a value that nobody has, and whose load takes
// 100 ms. See harness.Fleet for what is reported: how often it is loaded, and when the others have it. Beside it
// a PING in each process that wakes as many goroutines, for to wake 1,600 takes its time on a few cores.
func BenchmarkStampede(b *testing.B) {
	harness.NewFleet(b, harness.Start(b), 8, 200, 100*time.Millisecond, 0).Compare("leasehold", "ping")
}

// Four processes of four callers want a value whose load takes three times as
// long as the lease of the right to load: loads for each value.
func BenchmarkLongLoad(b *testing.B) {
	harness.NewFleet(b, harness.Start(b), 4, 4, 3*loadLease, loadLease).Compare("leasehold")
}

// The process that loads is killed in its load, while two others wait: loads of each value that came after it,
// and the time from the kill to the beginning of the first of them, median and worst, beside the lease.
func BenchmarkKilledLoader(b *testing.B) {
	srv := harness.Start(b)
	waiters := harness.Children(b, 2, "bench-loader", srv.URL())
	state := cache[string](b, srv.Client())
	successors, values := 0, 0
	var took []time.Duration
	for b.Loop() {
		key := fmt.Sprint("killed-", harness.Now())
		loader := harness.Children(b, 1, "bench-loader", srv.URL())[0]
		loader.Send(key + " 60000")
		loader.Expect("load")
		for _, c := range waiters {
			c.Send(key + " 10")
		}
		redistest.Eventually(b, "all wait for the load", func() bool {
			return redistest.Must(state.Inspect(b.Context(), key))(b).Waiting == len(waiters)
		})
		killed := harness.Now() // by the time that Kill returns the process has been dead for a while
		loader.Kill()
		var loads []int64
		for _, c := range waiters {
			loads = append(loads, begun(b, c)...)
		}
		redistest.CheckNow(b, len(loads) != 0, "nobody has taken over")
		took = append(took, time.Duration(slices.Min(loads)-killed))
		successors += len(loads)
		values++
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(successors)/float64(values), "successors")
	b.ReportMetric(harness.Micros(harness.Percentile(took, 50))/1000, "takeover-ms")
	b.ReportMetric(harness.Micros(harness.Percentile(took, 100))/1000, "takeover-worst-ms")
	b.ReportMetric(harness.Micros(loadLease)/1000, "lease-ms")
}
