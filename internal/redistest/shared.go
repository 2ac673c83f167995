package redistest

import (
	"errors"
	"sync"
	"testing"
)

// lazily starts something once, on first use, and remembers how that ended, so
// that the tests that come after a failed start fail at once.
type lazily[T any] struct {
	once  sync.Once
	value T
	err   error
}

func (l *lazily[T]) get(start func() (T, error)) (T, error) {
	l.once.Do(func() { l.value, l.err = start() })
	return l.value, l.err
}

// shared holds what lives as long as the test process. Main stops it.
var shared struct {
	sync.Mutex
	servers  map[Version]*lazily[*instance]
	clusters map[Version]*lazily[*fleet]
	secured  map[Version]*lazily[*secured]
	watched  map[Version]*lazily[*watched]
}

func entry[T any](all *map[Version]*lazily[T], v Version) *lazily[T] {
	shared.Lock()
	defer shared.Unlock()
	if *all == nil {
		*all = map[Version]*lazily[T]{}
	}
	if (*all)[v] == nil {
		(*all)[v] = new(lazily[T])
	}
	return (*all)[v]
}

// Shared returns the one server of that version that all tests of the process
// use, each with names of its own ([Name]). It can't be killed or paused, and
// must be neither flushed nor configured.
func Shared(tb testing.TB, v Version) *Server {
	tb.Helper()
	in, err := entry(&shared.servers, v).get(func() (*instance, error) {
		in, err := startInstance(v)
		if err == nil {
			in.shared = true
		}
		return in, err
	})
	CheckNow(tb, err == nil, "start %s: %v", v, err)
	return in.handle(tb)
}

// SharedCluster returns the one Cluster of that version that all tests of the
// process use, under the same rules as [Shared].
func SharedCluster(tb testing.TB, v Version) *Cluster {
	tb.Helper()
	f, err := entry(&shared.clusters, v).get(func() (*fleet, error) {
		f, err := startFleet(v)
		if err == nil {
			for _, node := range f.nodes {
				node.shared = true
			}
		}
		return f, err
	})
	CheckNow(tb, err == nil, "start a cluster of %s: %v", v, err)
	return f.handle(tb)
}

// sharedSentinel returns the one Sentinel set of that version that all tests of
// the process use, under the same rules as [Shared].
func sharedSentinel(tb testing.TB, v Version) *Sentinel {
	tb.Helper()
	w, err := entry(&shared.watched, v).get(func() (*watched, error) {
		w, err := startWatched(v)
		if err != nil {
			return w, err
		}
		for _, node := range w.nodes {
			node.shared = true
		}
		for _, s := range w.sentinels {
			s.shared = true
			err = errors.Join(err, s.do("SENTINEL", "SET", MasterName, "down-after-milliseconds", patience))
		}
		return w, err
	})
	CheckNow(tb, err == nil, "start sentinels of %s: %v", v, err)
	return w.handle(tb)
}

// sharedSecured returns the one server of that version that all tests of the
// process reach over TLS.
func sharedSecured(tb testing.TB, v Version) (*Server, *secured) {
	tb.Helper()
	s, err := entry(&shared.secured, v).get(func() (*secured, error) {
		s, err := startSecured(v)
		if err == nil {
			s.shared = true
		}
		return s, err
	})
	CheckNow(tb, err == nil, "start %s with TLS: %v", v, err)
	return s.handle(tb), s
}

// stopShared ends what was started. No test may run any more.
func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	for _, s := range shared.servers {
		if s.value != nil {
			s.value.stop()
		}
	}
	for _, c := range shared.clusters {
		if c.value != nil {
			c.value.stop()
		}
	}
	for _, s := range shared.secured {
		if s.value != nil {
			s.value.stop()
		}
	}
	for _, w := range shared.watched {
		if w.value != nil {
			w.value.stop()
		}
	}
	shared.servers, shared.clusters, shared.secured, shared.watched = nil, nil, nil, nil
}
