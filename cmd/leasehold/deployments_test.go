package main

import (
	"strconv"
	"syscall"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// Programs run in turn, and a revoked one is stopped, wherever the lease is.
func TestRunOnAllDeployments(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		url, name := target.URL(t), redistest.Name(t)
		locks, err := mutex.New(target.Client(t), mutex.Config{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		run := func() *tool {
			return start(t, url, "run", "--mutex", name, "--key", "k", "--ttl", "5m", "--lost", "kill", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN; sleep 300")
		}
		token := func(x *tool) uint64 {
			n, err := strconv.ParseUint(x.line(), 10, 64)
			if err != nil {
				t.Fatalf("%v; standard error: %s", err, x.stderr.String())
			}
			return n
		}
		first := run()
		low := token(first)
		second := run()
		redistest.Eventually(t, "a waiter", func() bool {
			state, err := locks.Inspect(t.Context(), "k")
			return err == nil && state.Waiting == 1
		})
		state, err := locks.Inspect(t.Context(), "k")
		if err != nil || !state.Held || state.LastToken != low {
			t.Fatalf("%+v, %v", state, err)
		}
		if x := start(t, url, "revoke", "--mutex", name, "--key", "k", "--reason", "a test", state.Holder.ID); x.code() != 0 {
			t.Fatalf("revoke: %s", x.stderr.String())
		}
		if got := first.code(); got != 124 {
			t.Errorf("the first ends with %d: %s", got, first.stderr.String())
		}
		if high := token(second); high <= low {
			t.Errorf("token %d comes after %d", high, low)
		}
		second.signal(syscall.SIGTERM)
		if got := second.code(); got != 128+15 {
			t.Errorf("the second ends with %d: %s", got, second.stderr.String())
		}
		if state, err := locks.Inspect(t.Context(), "k"); err != nil || state.Held || state.Waiting > 0 {
			t.Errorf("at the end: %+v, %v", state, err)
		}
		if err := locks.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
