package fleet

import (
	"bufio"
	"os"
	"runtime"
	"time"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// Servers are the addresses of the server that the workers use, which they reach
// through their proxies, and of the one that keeps the guarded values.
func (f *Fleet) Servers() (server, store string) { return f.server.Addr(), f.store }

// Gauge has every worker tell what its process takes, which it does as soon as it
// can. That is for the moments between two strikes.
func (f *Fleet) Gauge() {
	for _, m := range f.workers {
		m.child.Send("gauge")
	}
}

// obey does what the parent says, until that is to finish or the parent is gone.
func (w *worker) obey(orders *bufio.Scanner) {
	for orders.Scan() && orders.Text() == "gauge" {
		w.gauge()
	}
	w.finish.Store(true)
}

func (w *worker) gauge() {
	// What waits to be finalised or lies in a sync.Pool goes with the second one.
	runtime.GC()
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	// What was forgotten to be closed counts here, even if the server has closed its end. Not every system can tell.
	files, _ := os.ReadDir("/proc/self/fd")
	w.tell(history.Event{Kind: history.Gauge, At: history.Now(), Usage: &history.Usage{
		Goroutines: runtime.NumGoroutine(), Files: len(files), Heap: int64(mem.HeapAlloc),
	}})
}

// settle tells a last time what the process takes, when everything is closed and
// all that ran for it has ended, or should have: a TTL and a second later, by
// beats, since a machine that stands still is no excuse to count too early.
func (w *worker) settle() {
	const own = 2 // this goroutine and the pulse: obey has ended
	const beat = 5 * time.Millisecond
	for left := (w.Terms.TTL + time.Second) / beat; left > 0 && runtime.NumGoroutine() > own; left-- {
		time.Sleep(beat)
	}
	w.gauge()
}
