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
		took := time.Since(began)
		redistest.Check(t, errors.Is(err, ErrNotSent) && errors.Is(err, context.DeadlineExceeded) && took <= patience,
			"Do returned %v after %v; want ctx's error, unsent, after %v", err, took, patience)
		began = time.Now()
		var done sync.WaitGroup
		for i := range 50 {
			done.Go(func() {
				_, err := c.Do(t.Context(), echoed(fmt.Sprint("k", i), 1))
				redistest.Check(t, errors.Is(err, ErrNotSent) && Classify(err) == NotNow && !errors.Is(err, context.DeadlineExceeded),
					"%v, class %v; want that it was not sent", err, Classify(err))
			})
		}
		done.Wait()
		redistest.AtMost(t, time.Since(began), Bound, "calls without a deadline took %v")
		letDialsEnd()
	})
}

// The sample counts that says the most of a server's clock, unless the clock was set or the sample is old.
func TestRefined(t *testing.T) {
	born := time.Now()
	// at is a sample of a call that was sent after so long and ran at the server when it had its reply. The clock
	// is ahead by so much then.
	at := func(sent, took, ahead time.Duration) Sample {
		return Sample{Micros: (sent + took + ahead).Microseconds(), Sent: born.Add(sent), Got: born.Add(sent + took)}
	}
	const ms, s = time.Millisecond, time.Second
	old := at(s, 100*ms, 0)
	for name, c := range map[string]struct {
		by    Sample
		taken bool
	}{
		"slower":                          {at(2*s, s, 0), false},
		"quicker":                         {at(2*s, 10*ms, 0), true},
		"slower, and set forth":           {at(2*s, s, 200*ms), true},
		"slower, and set back":            {at(2*s, s, -2*s), true},
		"slower, when the other is young": {at(30*s, s, 0), false},
		"slower, when the other is old":   {at(30*s+200*ms, s, 0), true},
		"slower, of a call sent earlier":  {at(0, 2*s, 0), false},
	} {
		want := old
		if c.taken {
			want = c.by
		}
		redistest.Check(t, old.Refined(c.by) == want, "%s: taken %t", name, !c.taken)
	}
	redistest.Check(t, Sample{}.Refined(old) == old, "the first sample is not taken")
}

// A time that contradicts what is known of a clock may be forged: the server is asked for its time once a second at most.
func TestDoubtAsksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, c := newBubble(t)
		defer c.Settle()
		asked := 0
		rdb.AddHook(redistest.Around(func(_ context.Context, _ []redis.Cmder, send func() error) error { asked++; return send() }))
		for n := range 3 {
			for range 10 {
				c.Doubt("k")
				synctest.Wait()
			}
			redistest.Expect(t, asked, n+1, "it was asked %d times")
			time.Sleep(time.Second)
		}
	})
}
