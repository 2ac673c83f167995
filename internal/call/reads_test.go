package call

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// withLookUps runs a test in a bubble with a Client whose GETs are held up until the gate opens, if they are sent by
// themselves. It passes the size of each pipeline to pipelined.
func withLookUps(t *testing.T, pipelined func(n int, gate chan struct{}), test func(t *testing.T, c *Client, gate chan struct{})) {
	synctest.Test(t, func(t *testing.T) {
		rdb, c := newBubble(t, func(o *redis.Options) { o.PoolSize = 2 * maxReads })
		for i := range 3 {
			redistest.WantErr(t, rdb.Set(t.Context(), fmt.Sprint("k", i), i, 0).Err())
		}
		gate := make(chan struct{})
		gets := func(held func(n int)) redistest.Around {
			return func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				if cmds[0].Name() == "get" {
					held(len(cmds))
				}
				return send()
			}
		}
		rdb.AddHook(redistest.Apart{Around: gets(func(int) { <-gate }), Together: gets(func(n int) { pipelined(n, gate) })})
		test(t, c, gate)
	})
}

// A crowd of look-ups shares round trips, one read for each key. If a hook ends the goroutine of
// a shared round trip, its callers get an error, and the next callers are served.
func TestCrowdOfLookUpsSharesRoundTrips(t *testing.T) {
	for _, ends := range []bool{false, true} {
		t.Run(fmt.Sprint("ends=", ends), func(t *testing.T) {
			var mu sync.Mutex
			var sizes []int
			pipelined := func(n int, _ chan struct{}) {
				mu.Lock()
				sizes = append(sizes, n)
				mu.Unlock()
				if ends {
					runtime.Goexit()
				}
			}
			withLookUps(t, pipelined, func(t *testing.T, c *Client, gate chan struct{}) {
				var callers sync.WaitGroup
				failed := 0
				get := func(i int) {
					callers.Go(func() {
						ctx, cancel := c.WithBound(context.Background())
						defer cancel()
						keys := []string{fmt.Sprint("k", i%3), fmt.Sprint("k", (i+1)%3)}
						found := make([]Found, 1)
						if i%4 == 3 {
							found = c.GetMany(ctx, keys)
						} else {
							found[0].Text, found[0].Err = c.Get(ctx, keys[0])
						}
						mu.Lock()
						defer mu.Unlock()
						for n, one := range found {
							if one.Err != nil {
								failed++
								return
							} else if want := fmt.Sprint((i + n) % 3); one.Text != want {
								t.Errorf("k%s is %q", want, one.Text)
							}
						}
					})
				}
				for i := range maxReads {
					get(4 * i)
				}
				synctest.Wait()
				for i := range 100 {
					get(i)
				}
				synctest.Wait()
				close(gate)
				callers.Wait()
				redistest.Expect(t, fmt.Sprint(sizes), "[3]", "the shared round trips have %v keys; want one with three")
				want := 0
				if ends {
					want = 100
				}
				redistest.Expect(t, failed, want, "%d look-ups failed")
				for i := range 2 * maxReads {
					get(i)
					callers.Wait()
				}
				synctest.Wait()
				redistest.Expect(t, c.only.reads.trips, 0, "%d round trips are left")
			})
		})
	}
}

// Round trips that hang, as hooks may make them, hold up no look-up for long.
func TestHungLookUpsHoldUpNoOther(t *testing.T) {
	withLookUps(t, func(int, chan struct{}) {}, func(t *testing.T, c *Client, gate chan struct{}) {
		get := func() error {
			ctx, cancel := c.WithBound(context.Background())
			defer cancel()
			return redistest.ErrorOf(c.Get(ctx, "k"))
		}
		var hung sync.WaitGroup
		for range maxReads {
			hung.Go(func() { _ = get() })
		}
		synctest.Wait()
		began := time.Now()
		redistest.WantErr(t, get(), redis.Nil)
		redistest.Expect(t, time.Since(began), hungReads, "a look-up beside those that hang took %v")
		synctest.Wait() // until the shared round trip has given its place back
		redistest.Expect(t, c.only.reads.trips, 0, "%d round trips still count")
		close(gate)
		hung.Wait()
		redistest.Expect(t, c.only.reads.trips, 0, "%d round trips are left")
	})
}

// A look-up that waits for a round trip ends with its ctx, and within the bound.
func TestLookUpInALineEndsInTime(t *testing.T) {
	withLookUps(t, func(_ int, gate chan struct{}) { <-gate }, func(t *testing.T, c *Client, gate chan struct{}) {
		defer func() {
			close(gate)
			synctest.Wait()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(hungReads/2, cancel)
		for ctx, want := range map[context.Context]struct {
			err error
			d   time.Duration
		}{ctx: {context.Canceled, hungReads / 2}, context.Background(): {context.DeadlineExceeded, Bound}} {
			c.only.reads.mu.Lock()
			c.only.reads.trips = maxReads
			c.only.reads.mu.Unlock()
			bounded, cancel := c.WithBound(ctx)
			began := time.Now()
			_, err := c.Get(bounded, "k")
			took := time.Since(began)
			redistest.Check(t, errors.Is(err, want.err) && took <= want.d, "a look-up ended with %v after %v; want %v within %v", err, took, want.err, want.d)
			cancel()
		}
	})
}
