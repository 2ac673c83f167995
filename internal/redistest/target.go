package redistest

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Kind says what a Target is.
type Kind int

const (
	KindMini     Kind = iota // an embedded server
	KindSingle               // a real server
	KindCluster              // three real primaries, each with a replica
	KindTLS                  // a real server, over TLS and as a user who may do only what docs/security.md says
	KindSentinel             // a primary and two replicas, found by asking sentinels
)

func (k Kind) String() string { return [...]string{"mini", "single", "cluster", "tls", "sentinel"}[k] }

// Target is a server, or several, that a test runs on.
type Target struct {
	Name     string // the subtest's: "mini", "redis-7.0.15", "cluster-valkey-8.1.1"
	Kind     Kind
	Version  Version              // of all but KindMini
	Mini     *miniredis.Miniredis // KindMini: this test's own
	Server   *Server              // KindSingle and KindTLS: shared
	Cluster  *Cluster             // KindCluster: shared
	Sentinel *Sentinel            // KindSentinel: shared

	secure *secured // KindTLS
}

// Addr is the address of the embedded or the single server.
func (x Target) Addr() string {
	if x.Kind == KindMini {
		return x.Mini.Addr()
	}
	return x.Server.Addr()
}

// Client makes a client for the target that is closed at the end of the test. All of a test's clients see the
// same data. A Dialer of mod's should use the one that it finds there, where that is not nil.
func (x Target) Client(tb testing.TB, mod ...func(*redis.UniversalOptions)) redis.UniversalClient {
	tb.Helper()
	opt := new(redis.UniversalOptions)
	switch x.Kind {
	case KindCluster:
		opt.Addrs, opt.IsClusterMode = x.Cluster.Addrs(), true
	case KindTLS:
		x.secure.connect(opt)
	case KindSentinel:
		opt.Addrs, opt.MasterName = x.Sentinel.sentinelAddrs(), MasterName
	default:
		opt.Addrs = []string{x.Addr()}
	}
	for _, m := range mod {
		m(opt)
	}
	rdb := redis.NewUniversalClient(opt)
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// URL is how the command line is told where the target is. A test is skipped on
// KindTLS, whose certificates no URL has.
func (x Target) URL(tb testing.TB) string {
	tb.Helper()
	list := func(addrs []string) string { return addrs[0] + "?addr=" + strings.Join(addrs[1:], "&addr=") }
	switch x.Kind {
	case KindTLS:
		tb.Skip("a URL has no certificates")
	case KindSentinel:
		return "redis+sentinel://" + list(x.Sentinel.sentinelAddrs()) + "&master_name=" + MasterName
	case KindCluster:
		return "redis+cluster://" + list(x.Cluster.Addrs())
	}
	return "redis://" + x.Addr()
}

// Admin is Client, for a user who may do everything.
func (x Target) Admin(tb testing.TB) redis.UniversalClient {
	tb.Helper()
	if x.Kind == KindTLS {
		return x.Server.handle(tb).Client()
	}
	return x.Client(tb)
}

// Each runs fn as a subtest on an embedded server, on every installed server and on a Cluster of the newest
// one. Where no server is installed, one subtest "servers" is skipped, or fails, as [NeedServers] has it.
func Each(t *testing.T, fn func(t *testing.T, target Target)) {
	t.Helper()
	eachMini(t, fn)
	EachReal(t, fn)
}

// EachReal is Each without the embedded server, for what that can't do.
func EachReal(t *testing.T, fn func(t *testing.T, target Target)) {
	t.Helper()
	eachServer(t, fn)
	if versions := Installed(); len(versions) > 0 {
		onCluster(t, versions[len(versions)-1], fn)
	}
}

// Matrix is Each, over TLS on the newest version as a restricted user, and on the version
// before that behind sentinels. Its Cluster is of one version, by turns.
func Matrix(t *testing.T, fn func(t *testing.T, target Target)) {
	t.Helper()
	eachMini(t, fn)
	eachServer(t, fn)
	versions := Installed()
	last := len(versions) - 1
	if last < 0 {
		return
	}
	onCluster(t, byTurns(t), fn)
	run(t, KindTLS, versions[last], fn, func(t *testing.T, x *Target) { x.Server, x.secure = sharedSecured(t, x.Version) })
	run(t, KindSentinel, versions[max(0, last-1)], fn, func(t *testing.T, x *Target) { x.Sentinel = sharedSentinel(t, x.Version) })
}

// Some runs fn on an embedded server, and on one server and one Cluster, of versions by
// turns: for what depends on the client alone, or takes long.
func Some(t *testing.T, fn func(t *testing.T, target Target)) {
	t.Helper()
	SomeSingle(t, fn)
	if len(Installed()) > 0 {
		onCluster(t, byTurns(t), fn)
	}
}

// SomeSingle is Some without the Cluster.
func SomeSingle(t *testing.T, fn func(t *testing.T, target Target)) {
	t.Helper()
	eachMini(t, fn)
	if needed(t) {
		onServer(t, byTurns(t), fn)
	}
}

// byTurns is one of the installed versions, for each test always the same.
func byTurns(t *testing.T) Version {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(t.Name()))
	versions := Installed()
	return versions[sum.Sum32()%uint32(len(versions))]
}

func onCluster(t *testing.T, v Version, fn func(t *testing.T, target Target)) {
	t.Helper()
	run(t, KindCluster, v, fn, func(t *testing.T, x *Target) { x.Cluster = SharedCluster(t, v) })
}

// run runs fn as a subtest on a target that has to be started first.
func run(t *testing.T, kind Kind, v Version, fn func(*testing.T, Target), start func(*testing.T, *Target)) {
	t.Helper()
	x := Target{Name: kind.String() + "-" + v.Name, Kind: kind, Version: v}
	t.Run(x.Name, func(t *testing.T) {
		start(t, &x)
		fn(t, x)
	})
}

// EachSingle is Each without the Cluster: for tests with a [Proxy], which stands before one server.
func EachSingle(t *testing.T, fn func(t *testing.T, target Target)) {
	t.Helper()
	eachMini(t, fn)
	eachServer(t, fn)
}

func eachMini(t *testing.T, fn func(t *testing.T, target Target)) {
	t.Helper()
	t.Run(KindMini.String(), func(t *testing.T) { fn(t, Target{Name: "mini", Kind: KindMini, Mini: Mini(t)}) })
}

func eachServer(t *testing.T, fn func(t *testing.T, target Target)) {
	t.Helper()
	needed(t)
	for _, v := range Installed() {
		onServer(t, v, fn)
	}
}

// needed reports whether there are servers. Where one is missing, a subtest "servers" is
// skipped, or fails, as [NeedServers] has it.
func needed(t *testing.T) bool {
	t.Helper()
	f := installed()
	if len(f.versions) == 0 || len(f.broken) > 0 {
		t.Run("servers", func(t *testing.T) { NeedServers(t) })
	}
	return len(f.versions) > 0
}

func onServer(t *testing.T, v Version, fn func(t *testing.T, target Target)) {
	t.Helper()
	t.Run(v.Name, func(t *testing.T) { fn(t, Target{Name: v.Name, Kind: KindSingle, Version: v, Server: Shared(t, v)}) })
}

// Name makes a name that no other test uses, of lower-case letters, digits and
// dashes, and short: what a test keeps on a shared server goes under it.
func Name(tb testing.TB) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimPrefix(tb.Name(), "Test")) {
		if b.Len() == 24 {
			break
		}
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else {
			b.WriteByte('-')
		}
	}
	return fmt.Sprintf("%s-%08x", b.String(), rand.Uint32())
}

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
