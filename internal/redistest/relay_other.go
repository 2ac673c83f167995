//go:build !linux

package redistest

import "time"

func exactThread() {}

func sleepUntil(due time.Time) { time.Sleep(time.Until(due)) }
