package redistest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

//go:embed preload/clock.c
var clockSource []byte

// Clock is a server's wall clock, which jumps and stops when it is told to.
type Clock struct {
	tb   testing.TB
	path string
}

// StartWithClock starts a server as [StartServer] does, whose wall clock can be set while it runs. It needs Linux and
// a C compiler ($CC, or gcc): without them the test is skipped, or fails with LEASEHOLD_REQUIRE_SERVERS=1.
func StartWithClock(tb testing.TB, v Version, args ...string) (*Server, *Clock) {
	tb.Helper()
	dir := tb.TempDir()
	c := &Clock{tb: tb, path: filepath.Join(dir, "shift")}
	library := buildClock(tb, dir)
	c.Shift(0)
	env := []string{"LD_PRELOAD=" + library, "CLOCK_SHIFT=" + c.path}
	return own(tb, "a server with a clock", v, func(v Version) (*instance, error) { return startInstanceWith(v, env, args...) }).handle(tb), c
}

// Shift sets the server's wall clock to d from this machine's.
func (c *Clock) Shift(d time.Duration) { c.set(d.Microseconds(), 0) }

// Stop sets the server's wall clock, which from then on stands still.
func (c *Clock) Stop(at time.Time) { c.set(0, at.UnixMicro()) }

func (c *Clock) set(shift, stopped int64) {
	c.tb.Helper()
	// Written in place and at once: the server has the file mapped.
	file := Must(os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600))(c.tb)
	defer file.Close()
	words := binary.NativeEndian.AppendUint64(nil, uint64(shift))
	Must(file.Write(binary.NativeEndian.AppendUint64(words, uint64(stopped))))(c.tb)
}

func buildClock(tb testing.TB, dir string) (library string) {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("a server's clock can be set on Linux only")
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	source := filepath.Join(dir, "clock.c")
	library = filepath.Join(dir, "clock.so")
	WantErr(tb, os.WriteFile(source, clockSource, 0o600))
	out, err := exec.Command(cc, "-O2", "-Wall", "-fPIC", "-shared", "-nostdlib", "-o", library, source).CombinedOutput()
	if err == nil {
		return library
	}
	CheckNow(tb, os.Getenv(envRequire) != "1", "no C compiler to build a server's clock with: %v: %s", err, out)
	tb.Skipf("no C compiler to build a server's clock with: %v: %s", err, out)
	return ""
}
