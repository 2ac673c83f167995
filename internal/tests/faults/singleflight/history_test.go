package singleflight

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// writeHistory has processes act at random for a while, each through its own address,
// and joins what happened; meanwhile is what goes on beside them.
func writeHistory(t *testing.T, seed uint64, addrs []string, span time.Duration, meanwhile func(end time.Time)) valueHistory {
	t.Helper()
	setup := crowdSetup{Family: redistest.Name(t), TTL: 200 * time.Millisecond, LeaseTTL: 500 * time.Millisecond}
	var children []*redistest.Child
	var files []string
	for i, addr := range addrs {
		setup.Addr = addr
		arg, err := json.Marshal(setup)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.Join(t.TempDir(), "history"))
		children = append(children, redistest.StartChild(t, "fault history", string(arg), fmt.Sprint(seed+uint64(i)), span.String(), files[i]))
	}
	for _, c := range children {
		c.Expect("ready")
	}
	for _, c := range children {
		c.Send("")
	}
	meanwhile(time.Now().Add(span))
	all := valueHistory{Errs: map[string]int{}}
	for i, c := range children {
		if line, err := c.LineWithin(span + 30*time.Second); err != nil || line != "done" {
			t.Fatalf("a child says %q, %v", line, err)
		}
		var h valueHistory
		text, err := os.ReadFile(files[i])
		if err == nil {
			err = json.Unmarshal(text, &h)
		}
		if err != nil {
			t.Fatal(err)
		}
		all.Loads = append(all.Loads, h.Loads...)
		all.Reads = append(all.Reads, h.Reads...)
		all.Drops = append(all.Drops, h.Drops...)
		for text, n := range h.Errs {
			all.Errs[text] += n
		}
	}
	return all
}

// check compares each read with the Invalidates before it: the load that it is of
// must not have begun before an Invalidate was called that had returned when the
// read began.
func (h *valueHistory) check(t *testing.T) {
	t.Helper()
	loads := map[string]crowdLoad{}
	for _, l := range h.Loads {
		loads[l.ID] = l
	}
	slices.SortFunc(h.Drops, func(a, b dropSpan) int { return cmp.Compare(a.Return, b.Return) })
	// The last Invalidate to be called of those that had returned, by key.
	last := map[string][]dropSpan{}
	for _, d := range h.Drops {
		of := last[d.Key]
		if n := len(of); n > 0 && of[n-1].Called > d.Called {
			d.Called = of[n-1].Called
		}
		last[d.Key] = append(of, d)
	}
	running := map[string]bool{} // an Invalidate met a load
	for _, l := range h.Loads {
		for _, d := range last[l.Key] {
			if l.Began < d.Called && d.Called < l.End {
				running[fmt.Sprint(d)] = true
			}
		}
	}
	checked, chances, wrong := 0, 0, 0
	for _, r := range h.Reads {
		of := last[r.Key]
		n, _ := slices.BinarySearchFunc(of, r.Called, func(d dropSpan, at int64) int {
			if d.Return < at {
				return -1
			}
			return 1
		})
		if n == 0 {
			continue
		}
		checked++
		d := of[n-1]
		if running[fmt.Sprint(d)] {
			chances++
		}
		l, ok := loads[r.Value]
		if !ok {
			t.Fatalf("a read of %q, which no load gave", r.Value)
		}
		if l.Began < d.Called {
			if wrong++; wrong <= 5 {
				t.Errorf("a read called %d µs after an Invalidate had returned saw (%s) load %s, begun %d µs before that was called",
					r.Called-d.Return, r.Source, l.ID, d.Called-l.Began)
			}
		}
	}
	t.Logf("%d reads checked, %d of them wrong; before %d the last Invalidate had met a running load; %d loads, %d invalidations, failed: %v",
		checked, wrong, chances, len(h.Loads), len(h.Drops), h.Errs)
	if chances == 0 {
		t.Error("no read had a chance to be wrong")
	}
}

// Processes load, read and invalidate at random: no caller that comes after an
// Invalidate sees what was loaded before.
func TestFaultHistory(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	seed, _ := harness.Seeded(t)
	var addrs []string
	for range historianCount {
		addrs = append(addrs, srv.Addr())
	}
	h := writeHistory(t, seed, addrs, harness.Soak(t, 3*time.Second), func(time.Time) {})
	h.check(t)
	if len(h.Errs) > 0 {
		t.Errorf("calls failed: %v", h.Errs)
	}
}

// The same on a bad network: replies are lost, messages too, connections are cut,
// and all that the server has is flushed now and then.
func TestFaultHistoryOnABadNetwork(t *testing.T) {
	srv := redistest.StartServer(t, redistest.Newest(t))
	seed, rng := harness.Seeded(t)
	var addrs []string
	var proxies []*redistest.Proxy
	for i := range historianCount {
		p := redistest.NewProxy(t, srv.Addr())
		proxies, addrs = append(proxies, p), append(addrs, p.Addr())
		var mu sync.Mutex
		dice := rand.New(rand.NewPCG(seed, uint64(i)+1000))
		p.SetHook(func(ev redistest.Event) redistest.Action {
			mu.Lock()
			x := dice.Float64()
			mu.Unlock()
			switch {
			case ev.Stage == redistest.OnReply && x < 0.003:
				return redistest.Close
			case ev.Stage == redistest.OnReply && x < 0.004:
				return redistest.Vanish
			case ev.Stage == redistest.OnRequest && x < 0.003:
				return redistest.Close
			}
			return redistest.Pass
		})
	}
	rdb := srv.Client()
	flushed := 0
	h := writeHistory(t, seed, addrs, harness.Soak(t, 3*time.Second), func(end time.Time) {
		for time.Now().Before(end) {
			time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
			p := proxies[rng.IntN(len(proxies))]
			switch rng.IntN(12) {
			case 0:
				p.CloseAll()
			case 1, 2:
				p.DropMessages(true)
			case 3, 4, 5:
				p.DropMessages(false)
			case 6:
				flushed++
				if err := rdb.FlushAll(t.Context()).Err(); err != nil {
					t.Error(err)
				}
			}
		}
		for _, p := range proxies {
			p.SetHook(nil)
			p.DropMessages(false)
		}
	})
	h.check(t)
	t.Logf("flushed %d times", flushed)
}
