package redistest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Version is one server program that can be started.
type Version struct {
	Name                string // "redis-7.0.15", "valkey-8.1.1"
	Major, Minor, Patch int

	path string
}

// AtLeast reports whether v is of that release or a later one. Valkey went on
// from Redis 7.2, so numbers of the two compare as far as that.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

func (v Version) String() string { return v.Name }

func compareVersions(a, b Version) int {
	return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor),
		cmp.Compare(a.Patch, b.Patch), cmp.Compare(a.Name, b.Name))
}

// Environment variables that the tests obey.
const (
	envServers = "LEASEHOLD_SERVERS"         // a folder like the one that scripts/servers.sh fills
	envRequire = "LEASEHOLD_REQUIRE_SERVERS" // "1": a missing server fails a test rather than skips it
	envLog     = "LEASEHOLD_TEST_LOG"        // "1": go-redis logs
)

// Installed lists the servers that tests can start, oldest first. It lists none unless LEASEHOLD_SERVERS,
// LEASEHOLD_REQUIRE_SERVERS or [UseServers] asks for them, so that a plain `go test ./...` is quick on every
// machine. The servers come from the folder that LEASEHOLD_SERVERS names; where that is unset, from .servers
// of this module, or else from PATH.
func Installed() []Version { return slices.Clone(installed().versions) }

// UseServers asks for the installed servers as LEASEHOLD_SERVERS does. It is for benchmarks and for the
// TestMain of packages in modules of their own, which run only where somebody names them.
func UseServers() { serversAsked.Store(true) }

var serversAsked atomic.Bool

func installed() findings {
	_, named := os.LookupEnv(envServers)
	if !named && os.Getenv(envRequire) != "1" && !serversAsked.Load() {
		return findings{}
	}
	return found()
}

type findings struct {
	versions []Version
	broken   []string // binaries that are there and don't run, each with its error
}

// The binaries are asked once per process: four of them take a tenth of a second, too much for every test.
var found = sync.OnceValue(func() findings {
	paths := binaries()
	versions, errs := make([]Version, len(paths)), make([]error, len(paths))
	var wg sync.WaitGroup
	for i, path := range paths {
		wg.Go(func() { versions[i], errs[i] = ask(path) })
	}
	wg.Wait()

	var f findings
	for i, path := range paths {
		switch {
		case errs[i] != nil:
			f.broken = append(f.broken, fmt.Sprintf("%s: %v", path, errs[i]))
		case !slices.ContainsFunc(f.versions, func(v Version) bool { return v.Name == versions[i].Name }):
			f.versions = append(f.versions, versions[i])
		}
	}
	slices.SortFunc(f.versions, compareVersions)
	return f
})

func binaries() []string {
	if dir, ok := os.LookupEnv(envServers); ok {
		return unpacked(dir)
	}
	if found := unpacked(inModule(".servers")); len(found) > 0 {
		return found
	}
	var found []string
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, path)
		}
	}
	return found
}

// inModule is where something of this module lies, also for the tests of nested modules.
func inModule(path ...string) string {
	root, _ := os.Getwd() // a test runs in the folder of its package
	for ; root != filepath.Dir(root); root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "luascripts")); err == nil {
			break
		}
	}
	return filepath.Join(root, filepath.Join(path...))
}

func unpacked(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, "*", "run", "*-server"))
	return found
}

var versionLine = regexp.MustCompile(`^(Redis|Valkey) server v=(\d+)\.(\d+)\.(\d+)`)

func ask(path string) (Version, error) {
	out, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil {
		return Version{}, fmt.Errorf("--version: %w: %s", err, strings.TrimSpace(string(out)))
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return Version{}, fmt.Errorf("--version answers %q", out)
	}
	number := func(i int) int { n, _ := strconv.Atoi(string(m[i])); return n }
	v := Version{Major: number(2), Minor: number(3), Patch: number(4), path: path}
	v.Name = fmt.Sprintf("%s-%d.%d.%d", strings.ToLower(string(m[1])), v.Major, v.Minor, v.Patch)
	return v, nil
}

// NeedServers returns what [Installed] lists. Where that is nothing it skips the test with a line that says
// what to do; with LEASEHOLD_REQUIRE_SERVERS=1 it fails the test instead, so that a run which is meant to be
// complete can't pass by leaving things out.
func NeedServers(tb testing.TB) []Version {
	tb.Helper()
	all := installed()
	if required := os.Getenv(envRequire) == "1"; required && len(all.broken) > 0 {
		tb.Fatalf("servers that don't run: %s", strings.Join(all.broken, "; "))
	} else if required && len(all.versions) == 0 {
		tb.Fatal("no servers to test on: run `make servers`")
	}
	if len(all.versions) == 0 {
		tb.Skip("no servers to test on: run `make test`, or set LEASEHOLD_REQUIRE_SERVERS=1 to use those that are installed")
	}
	return slices.Clone(all.versions)
}

// Newest returns the latest installed version, or skips as [NeedServers] does.
func Newest(tb testing.TB) Version {
	tb.Helper()
	v := NeedServers(tb)
	return v[len(v)-1]
}

// Full is full where make test runs, and few where somebody waits for go test.
func Full(full, few int) int {
	if os.Getenv(envRequire) == "1" {
		return full
	}
	return few
}
