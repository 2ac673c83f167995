package singleflight

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

func loadLocally(c *singleflight.Config[string]) { c.OnUnavailable = singleflight.LoadLocally }

// oldThenNew is a loader that returns "old" when gate is closed, and "new" in every later call.
func oldThenNew() (load loaderFunc, began, gate chan struct{}) {
	began, gate = make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	return func(context.Context) (string, error) {
		if calls.Add(1) > 1 {
			return "new", nil
		}
		close(began)
		<-gate
		return "old", nil
	}, began, gate
}

func wantValue(t *testing.T, who, want string, done <-chan fetchResult) {
	t.Helper()
	if r := harness.Got(t, 20*time.Second, who, done); r.err != nil || r.Value != want {
		t.Errorf("%s got %q (%v), %v; want %q", who, r.Value, r.Source, r.err, want)
	}
}
