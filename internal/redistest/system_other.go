//go:build !linux

package redistest

import (
	"io"
	"syscall"
	"time"
)

// Other systems have no signal for a parent's death: there, a test run that is killed leaves its servers behind.
func dieWithParent() *syscall.SysProcAttr { return nil }

func reserve(int) (io.Closer, error) { return io.NopCloser(nil), nil }

// There is no cheap way to ask, so the signal is taken for its effect.
func isStopped(int) bool { return true }

func memoryFolder() string { return "" }

func exactThread() {}

func sleepUntil(due time.Time) { time.Sleep(time.Until(due)) }
