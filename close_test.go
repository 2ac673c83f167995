package leasehold_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Once a Close has returned nil, another one has nothing to wait for, whatever its ctx.
func TestCloseAfterClose(t *testing.T) {
	rdb := redistest.MiniClient(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // of two things that are ready, a select takes any
		sem := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "f", Limit: 1, KeepFor: time.Second}))(t)
		mtx := redistest.Must(mutex.New(rdb, mutex.Config{Name: "f"}))(t)
		flight := redistest.Must(singleflight.New(rdb, singleflight.Config[string]{Name: "f", TTL: time.Minute, NearFor: time.Second}))(t)
		for _, h := range []interface {
			Close(context.Context) error
			Shutdown(context.Context) error
		}{sem, mtx, flight} {
			redistest.NoError(t, h.Close(t.Context()))
			redistest.NoError(t, h.Close(ended))
			redistest.NoError(t, h.Shutdown(ended))
		}
	}
}
