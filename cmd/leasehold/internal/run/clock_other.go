//go:build unix && !linux

package run

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock is read alike by all processes of the machine.
func clock() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return time.Duration(t.Nano())
}
