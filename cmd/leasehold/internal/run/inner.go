//go:build unix

package run

import "os"

// The names under which the tool starts itself.
const (
	guardCommand    = "run-guard"
	listenerCommand = "run-listener"
)

// Inner runs one of the processes that the tool starts of itself, and reports whether args name one.
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

// startSelf starts the running program's file, also where another version was installed in its place since.
func startSelf(args []string, attr *os.ProcAttr) (*os.Process, error) {
	self := "/proc/self/exe"
	if _, err := os.Readlink(self); err != nil {
		if self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	return os.StartProcess(self, append([]string{"leasehold"}, args...), attr)
}

// pipes are one to a process, from to in, and one back, from out to words.
func pipes() (in, to, words, out *os.File, err error) {
	if in, to, err = os.Pipe(); err == nil {
		words, out, err = os.Pipe()
	}
	return in, to, words, out, err
}
