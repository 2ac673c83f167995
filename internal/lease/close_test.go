package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Close waits for a Release that is under way: a program that closes the client after it
// takes nothing from that.
func TestCloseWaitsForARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		rdb := client()
		m := newLocks(t, rdb, time.Minute)
		l := mustTake(t, m, "k")
		hold := &holdReplies{enters: make(chan struct{}), asks: make(chan struct{})}
		close(hold.asks)
		rdb.AddHook(hold)
		released, closed := make(chan error, 1), make(chan error, 1)
		go func() { released <- l.Release("unlock") }()
		synctest.Wait()
		go func() { closed <- m.Close(context.Background()) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close returned before the Release had its answer")
		default:
		}
		close(hold.enters)
		if err := <-released; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("Close did not return after the Release")
		}
	})
}
