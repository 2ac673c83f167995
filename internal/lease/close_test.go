package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Close waits for what is under way: a program that closes the client after it takes nothing from a Release, nor from the
// question for the time, which goes beside a call once what is known of the server's clock is old.
func TestCloseWaits(t *testing.T) {
	for what, held := range map[string]string{"a Release": "leave", "the question for the time": "time"} {
		inBubble(t, time.Minute, func(t *testing.T, rdb *redis.Client, m *lease.Manager) {
			redistest.WantErr(t, mustTake(t, m, "k").Release("unlock"))
			time.Sleep(time.Minute)
			until := make(chan struct{})
			record(rdb).spoilWith(func(cmd redis.Cmder) error {
				if script(cmd) == held {
					<-until
				}
				return nil
			})
			l := mustTake(t, m, "k")
			released, closed := make(chan error, 1), make(chan error, 1)
			go func() { released <- l.Release("unlock") }()
			synctest.Wait()
			go func() { closed <- m.Close(context.Background()) }()
			synctest.Wait()
			redistest.Expect(t, len(closed), 0, "Close returned %d times while %s was under way", what)
			close(until)
			redistest.NoError(t, <-released)
			redistest.NoError(t, <-closed)
		})
	}
}
