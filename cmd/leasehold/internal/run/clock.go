//go:build unix

package run

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock is read alike by all processes of the machine; where clockID can, it goes on while the machine sleeps.
func clock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clockID, &t); err != nil {
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	}
	return time.Duration(t.Nano())
}
