package redistest

import (
	"runtime"
	"syscall"
	"time"
)

// exactThread gives the goroutine a thread of its own that wakes when it is to, and not up
// to 50 µs later, which is the kernel's usual slack.
func exactThread() {
	const setTimerSlack = 29 // of prctl
	runtime.LockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, 1, 0)
}

// sleepUntil sleeps by the kernel's clock: Go's own timers may come a millisecond late where the network is busy.
func sleepUntil(due time.Time) {
	for left := time.Until(due); left > 0; left = time.Until(due) {
		ts := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&ts, nil)
	}
}
