// Package soak lets worker processes use every primitive for a long time while faults strike, and looks for
// what adds up: goroutines, memory, open files, keys. It is a test, run from the module's folder:
//
//	go test ./soak                                             # six seconds, which judge the end only
//	LEASEHOLD_SOAK=20m go test -v -count=1 -timeout 40m ./soak  # and the figures
//
// Half of the workers live as long as the test, the others are killed and replaced at times; all suffer every
// other fault after which the limits hold. In the end the workers close what they have, and nothing may be
// left of it but what is documented to last.
//
// A run of a minute or more also judges the workers that live: the median of what one has in the last quarter
// of the run may lie no more than a fixed allowance above that in the second quarter.
//
// The test's own process keeps every event, for the sweeps: some 1.5 GiB in 20
// minutes. Only the workers are judged.
package soak

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/check"
	"github.com/leasehold-go/leasehold/robustness/internal/fleet"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

func TestMain(m *testing.M) {
	redistest.UseServers()
	redistest.Main(m)
}

const (
	workers = 4
	spared  = 2               // of these, from being killed
	short   = 6 * time.Second // is what a run takes that nobody asked for
	samples = 160             // of a long run
)

// Nothing adds up, nothing is left, and nobody sees a promise broken.
func TestSoak(t *testing.T) {
	span, long := short, false
	if text, ok := os.LookupEnv("LEASEHOLD_SOAK"); ok {
		span = redistest.Must(time.ParseDuration(text))(t)
		long = span >= time.Minute
	}
	f := fleet.Start(t, fleet.Config{
		Seed: redistest.Seed(t), Fault: fleet.Mixed(), Version: redistest.Newest(t), Workers: workers, Spared: spared,
	})
	from := history.Now()
	for began, last := time.Now(), (time.Time{}); time.Since(began) < span; {
		f.Strike()
		if time.Since(last) > max(span/samples, 200*time.Millisecond) {
			last = time.Now()
			f.Gauge()
		}
	}
	whole := history.Span{From: from, To: history.Now()}
	h := f.Finish()
	nothingLeft(t, f)
	r := check.Sweep(h)
	r.Tell(t)
	ended(t, h)
	for i := range spared {
		steady(t, h, fmt.Sprint("w", i+1), whole, long)
	}
	t.Logf("%s on %s: %d faults; %v", span, h.Terms.Server, len(h.Struck), r)
}

// usage is what the gauges of a worker told between two moments.
func usage(h *history.History, worker string, from, to int64) (all []*history.Usage) {
	for _, e := range h.Events {
		if e.Usage != nil && e.Worker == worker && e.At >= from && e.At <= to {
			all = append(all, e.Usage)
		}
	}
	return all
}

// figures are what is judged of a usage.
var figures = []struct {
	name    string
	of      func(*history.Usage) int64
	allowed int64 // what a busy machine and the faults make of the medians, with something to spare
	kept    int64 // what may be more when everything is closed
}{
	{"goroutines", func(u *history.Usage) int64 { return int64(u.Goroutines) }, 10, -1}, // at first one more listened for what to do
	// The faults close connections at the server's end; a leak keeps the file open.
	{"open files", func(u *history.Usage) int64 { return int64(u.Files) }, 20, 0},
	{"bytes of heap", func(u *history.Usage) int64 { return u.Heap }, 1 << 20, 1 << 19}, // libraries make something once
}

// ended checks that workers had no goroutines and no connections left after they had closed everything, but
// what they had before they made it; and no more heap, as far as that can be told.
func ended(t *testing.T, h *history.History) {
	t.Helper()
	for _, e := range h.Events {
		if e.Kind != history.Done {
			continue
		}
		all := usage(h, e.Worker, 0, history.Forever)
		for _, f := range figures {
			redistest.AtMost(t, f.of(all[len(all)-1]), f.of(all[0])+f.kept, "%s had %[3]d %[2]s after it had closed everything", e.Worker, f.name)
		}
	}
}

// steady compares the medians of the second and the last quarter of a long run.
func steady(t *testing.T, h *history.History, worker string, whole history.Span, long bool) {
	t.Helper()
	quarter := whole.Length() / 4
	second := usage(h, worker, whole.From+quarter, whole.From+2*quarter)
	last := usage(h, worker, whole.From+3*quarter, whole.To)
	redistest.CheckNow(t, !long || len(second) > 0 && len(last) > 0, "%s was not gauged in both quarters", worker)
	if len(second) == 0 || len(last) == 0 {
		return
	}
	for _, f := range figures {
		early, late := median(second, f.of), median(last, f.of)
		t.Logf("%s: %d %s in the second quarter, %d in the last", worker, early, f.name, late)
		redistest.Check(t, !long || late <= early+f.allowed, "%s: more than %d above", worker, f.allowed)
	}
}

func median(all []*history.Usage, of func(*history.Usage) int64) int64 {
	var figures []int64
	for _, u := range all {
		figures = append(figures, of(u))
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}

// nothingLeft waits until the servers have nothing any more but what is documented to last: the last tokens of
// mutexes, slots that are complete, and what the guards know. The charges of a total have 24 s; the rest is for a busy machine.
func nothingLeft(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	server, store := f.Servers()
	for closed := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		tokens, left := lasting(t, server, "leasehold:mtx:", ":fence")
		guarded, more := lasting(t, store, "leasehold:grd:", ":value", ":seen")
		took := time.Since(closed).Round(time.Millisecond)
		if left = append(left, more...); len(left) == 0 {
			t.Logf("%v after the end there are only %d tokens of mutexes and complete slots, and %d keys of guards", took, tokens, guarded)
			return
		}
		redistest.CheckNow(t, took <= time.Minute, "%v after the end there are left: %q", took, left)
	}
}

// lasting counts the keys of a server, and lists those that should not be there, or that stay for longer than
// a day and the minute that guarded values are given.
func lasting(t *testing.T, addr, kind string, parts ...string) (n int, bad []string) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	all := rdb.Scan(t.Context(), 0, "*", 1000).Iterator()
	for ; all.Next(t.Context()); n++ {
		key := all.Val()
		ttl := redistest.Must(rdb.PTTL(t.Context(), key).Result())(t)
		documented := strings.HasPrefix(key, kind) && slices.ContainsFunc(parts, func(part string) bool { return strings.HasSuffix(key, part) })
		gone := ttl == -2 // since the scan
		slot := strings.HasPrefix(key, kind) && strings.Contains(key, ":done:") && ttl > 0 && ttl <= fleet.SlotsKept
		if !gone && !slot && (!documented || ttl < 0 || ttl > 24*time.Hour+time.Minute) {
			bad = append(bad, fmt.Sprint(key, " for ", ttl))
		}
	}
	redistest.WantErr(t, all.Err())
	return n, bad
}
