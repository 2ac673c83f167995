//go:build unix

package run

import "os"

// The names under which the tool starts itself.
const (
	guardCommand    = "run-guard"
	listenerCommand = "run-listener"
)

// Inner runs one of the processes that the tool starts of itself, and reports
// whether args name one.
func Inner(args []string) (code int, ok bool) {
	if len(args) < 1 {
		return 0, false
	}
	switch args[0] {
	case guardCommand:
		return Guard(args[1:]), true
	case listenerCommand:
		return Listener(), true
	}
	return 0, false
}

// self is the running program's file, also where another version was installed
// in its place since.
func self() (string, error) {
	const proc = "/proc/self/exe"
	if _, err := os.Readlink(proc); err == nil {
		return proc, nil
	}
	return os.Executable()
}
