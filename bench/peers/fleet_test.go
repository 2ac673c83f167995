package peers

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// fleet is processes of callers.
type fleet struct {
	b         *testing.B
	processes []*redistest.Child
	keys      int
}

// newFleet starts processes of so many callers each.
func newFleet(b *testing.B, srv *harness.Server, processes, callers int, load, lease time.Duration) *fleet {
	b.Helper()
	f := &fleet{b: b}
	url := srv.URL()
	for range processes {
		f.processes = append(f.processes, redistest.StartChild(b, "callers", url, strconv.Itoa(callers), load.String(), lease.String()))
	}
	for _, p := range f.processes {
		p.Expect("ready")
	}
	return f
}

// round is what became of a key that all callers asked for at once.
type round struct {
	loads     int
	followers []time.Duration // until each that did not load had the value, since the first load had ended
	trips     []time.Duration // of the pings
}

// run lets all callers of the fleet ask for a key that nobody has asked for.
func (f *fleet) run(who string) (r round) {
	f.b.Helper()
	f.keys++
	line, err := json.Marshal(order{
		At:  time.Now().Add(50 * time.Millisecond).UnixNano(), // all have read it by then
		Who: who,
		Key: fmt.Sprintf("%s-%d", who, f.keys),
	})
	if err != nil {
		f.b.Fatal(err)
	}
	for _, p := range f.processes {
		p.Send(string(line))
	}
	answers := make([]answer, len(f.processes))
	var first int64
	for i, p := range f.processes {
		line, err := p.Line()
		if err != nil {
			f.b.Fatalf("%s: %v", who, err)
		}
		if err := json.Unmarshal([]byte(line), &answers[i]); err != nil {
			f.b.Fatalf("%s: %v in %q", who, err, line)
		}
		a := answers[i]
		if a.Err != "" {
			f.b.Fatalf("%s: %s", who, a.Err)
		}
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

// compare lets each of who run, in turn and b.N times, and reports of each the
// mean number of loads in the fleet, and the medians, over the rounds, of the
// time until half of the followers, 99 % of them and the last one had the value,
// after the first load had ended: "<who>-loads", "-p50-ms", "-p99-ms" and
// "-last-ms".
func (f *fleet) compare(who ...string) {
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
		var trips []time.Duration
		for _, r := range rounds[i] {
			loads += r.loads
			trips = append(trips, r.trips...)
		}
		if w == "ping" {
			f.b.ReportMetric(harness.Micros(harness.Percentile(trips, 50)), w+"-µs")
		} else {
			f.b.ReportMetric(float64(loads)/float64(len(rounds[i])), w+"-loads")
		}
		for _, p := range []struct {
			name string
			p    float64
		}{{"p50", 50}, {"p99", 99}, {"last", 100}} {
			var all []time.Duration
			for _, r := range rounds[i] {
				all = append(all, harness.Percentile(slices.Clone(r.followers), p.p))
			}
			f.b.ReportMetric(harness.Micros(harness.Percentile(all, 50))/1000, w+"-"+p.name+"-ms")
		}
	}
}
