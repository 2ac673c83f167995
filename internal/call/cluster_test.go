package call

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A Cluster that cannot be reached delays nobody beyond the caller's own ctx, and Node and Send's caller not at all.
func TestClusterThatCannotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hole := hangingDialer{hangs: true}
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"192.0.2.1:6379", "192.0.2.2:6379"}, Dialer: hole.dial})
		defer rdb.Close()
		c := redistest.Must(NewClient(rdb))(t)
		began := time.Now()
		redistest.Expect(t, c.Node("k"), "?", "the node is %q; want none that is known")
		redistest.Expect(t, time.Since(began), 0, "Node took %v")
		const patience = 200 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := c.Do(ctx, echoed("k", 1))
		if took := time.Since(began); !errors.Is(err, ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) || took > patience {
			t.Errorf("Do returned %v after %v; want ctx's error, unsent, after %v", err, took, patience)
		}
		began = time.Now()
		var done sync.WaitGroup
		for i := range 50 {
			done.Go(func() {
				_, err := c.Do(t.Context(), echoed(fmt.Sprint("k", i), 1))
				if !errors.Is(err, ErrNotSent) || Classify(err) != NotNow || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, class %v; want that it was not sent", err, Classify(err))
				}
			})
		}
		done.Wait()
		redistest.AtMost(t, time.Since(began), Bound, "calls without a deadline took %v")
		letDialsEnd()
	})
}
