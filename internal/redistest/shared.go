package redistest

import (
	"sync"
	"testing"
)

// started is a server, or several. It may also be some of those that were to start.
type started interface{ servers() []*instance }

// shared holds what lives as long as the test process, each by its kind and version, and started
// on first use. Main stops it. The tests that come after a failed start fail at once.
var shared struct {
	sync.Mutex
	starts map[kindOf]func() (started, error)
}

type kindOf struct {
	what string
	Version
}

// common returns what all tests of the process share.
func common[T started](tb testing.TB, what string, v Version, start func(Version) (T, error)) T {
	tb.Helper()
	shared.Lock()
	if shared.starts == nil {
		shared.starts = map[kindOf]func() (started, error){}
	}
	at := kindOf{what, v}
	if shared.starts[at] == nil {
		shared.starts[at] = sync.OnceValues(func() (started, error) {
			x, err := start(v)
			for _, in := range x.servers() {
				in.shared = true
			}
			return x, err
		})
	}
	once := shared.starts[at]
	shared.Unlock()
	x, err := once()
	CheckNow(tb, err == nil, "start %s of %s: %v", what, v, err)
	return x.(T)
}

// own starts something for a test alone: its end stops it.
func own[T started](tb testing.TB, what string, v Version, start func(Version) (T, error)) T {
	tb.Helper()
	x, err := start(v)
	tb.Cleanup(fleet(x.servers()).stop)
	CheckNow(tb, err == nil, "start %s of %s: %v", what, v, err)
	return x
}

// stopShared ends what was started. No test may run any more.
func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	for _, once := range shared.starts {
		x, _ := once()
		fleet(x.servers()).stop()
	}
	shared.starts = nil
}

// Shared returns the one server of that version that all tests of the process use, each with names of its own
// ([Name]). It can't be killed or paused, and must be neither flushed nor configured.
func Shared(tb testing.TB, v Version) *Server {
	tb.Helper()
	return common(tb, "a server", v, func(v Version) (*instance, error) { return startInstance(v) }).handle(tb)
}

// SharedCluster returns the one Cluster of that version that all tests of the
// process use, under the same rules as [Shared].
func SharedCluster(tb testing.TB, v Version) *Cluster {
	tb.Helper()
	return &Cluster{common(tb, "a cluster", v, startFleet).handles(tb), tb}
}

// sharedSentinel returns the one Sentinel set of that version that all tests of
// the process use, under the same rules as [Shared].
func sharedSentinel(tb testing.TB, v Version) *Sentinel {
	tb.Helper()
	return common(tb, "sentinels", v, func(v Version) (watched, error) {
		w, err := startWatched(v)
		for _, s := range w.sentinels {
			if err == nil {
				err = s.do("SENTINEL", "SET", MasterName, "down-after-milliseconds", patience)
			}
		}
		return w, err
	}).handle(tb)
}

// sharedSecured returns the one server of that version that all tests of the process reach over TLS.
func sharedSecured(tb testing.TB, v Version) (*Server, *secured) {
	tb.Helper()
	s := common(tb, "a server with TLS", v, startSecured)
	return s.handle(tb), s
}
