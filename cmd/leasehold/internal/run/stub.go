//go:build unix

package run

import (
	"fmt"
	"os"
	"syscall"
)

// The names under which the tool starts itself.
const (
	guardCommand = "run-guard"
	stubCommand  = "run-program"
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
	case stubCommand:
		return stub(args[1:]), true
	}
	return 0, false
}

// stub becomes the program once the guard, which has to know its process group
// by then, says so; where the guard or the tool dies before, it never does.
func stub(args []string) int {
	if len(args) < 2 {
		return CodeTool
	}
	start := os.NewFile(startFile, "start")
	if n, _ := start.Read(make([]byte, 1)); n != 1 {
		return CodeTool
	}
	_ = start.Close()
	err := syscall.Exec(args[0], args[1:], os.Environ())
	fmt.Fprintf(os.Stderr, "leasehold: %s: can't be run: %v\n", args[0], err)
	return CodeCannotRun
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
