//go:build unix

package main

import (
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
)

func inner(args []string) (code int, ok bool) { return run.Inner(args) }

// dieOf ends the process by a signal that it had caught, so that the shell sees
// what ended it. Where the signal is ignored it returns.
func dieOf(n int) {
	signal.Reset(syscall.Signal(n))
	_ = syscall.Kill(syscall.Getpid(), syscall.Signal(n))
	time.Sleep(time.Second)
}
