package leaseholdtest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/singleflight"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// both runs fn outside and inside a bubble.
func both(t *testing.T, fn func(t *testing.T)) {
	t.Run("outside a bubble", fn)
	t.Run("inside a bubble", func(t *testing.T) { synctest.Test(t, fn) })
}

// Each test has a server of its own, and its goroutines end with the test.
func TestClientIsClosedAtTheEndOfTheTest(t *testing.T) {
	var used redis.UniversalClient
	t.Run("first", func(t *testing.T) {
		used = leaseholdtest.Client(t)
		redistest.WantErr(t, used.Set(t.Context(), "k", "v", 0).Err())
		redistest.Expect(t, leaseholdtest.Client(t).Exists(t.Context(), "k").Val(), 0, "the key is on another server, too")
	})
	redistest.WantErr(t, used.Ping(t.Context()).Err(), redis.ErrClosed)
}

// During an outage calls fail, a lease that cannot be renewed is lost, and afterwards all works again.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients := leaseholdtest.Clients(t, 2)
		rdb, other := clients[0], clients[1]
		m := redistest.Must(mutex.New(rdb, mutex.Config{Name: "reports", TTL: 30 * time.Second}))(t)
		defer m.Close(t.Context())
		lock := redistest.Must(m.Lock(t.Context(), "daily"))(t)
		began, end := time.Now(), leaseholdtest.Outage(rdb)
		redistest.WantErr(t, redistest.ErrorOf(m.TryLock(t.Context(), "weekly")), leasehold.ErrUnavailable)
		_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.Get(t.Context(), "k"); return nil })
		redistest.Check(t, err != nil, "a pipeline succeeds")
		redistest.Expect(t, other.Ping(t.Context()).Err(), nil, "another client: %v")
		<-lock.Context().Done()
		redistest.WantErr(t, context.Cause(lock.Context()), leasehold.ErrLost)
		redistest.AtMost(t, time.Since(began), 30*time.Second, "it is lost after %v")
		end()
		redistest.NoError(t, redistest.Must(m.Lock(t.Context(), "daily"))(t).Unlock())
	})
}

// A command that waits for another client's command does not keep that one from running. In a
// script the clock stands still, and moves on before the next one.
func TestClockMovesBetweenCommands(t *testing.T) {
	both(t, func(t *testing.T) {
		rdb := leaseholdtest.Client(t)
		popped := make(chan error)
		go func() { popped <- rdb.BLPop(t.Context(), time.Minute, "list").Err() }()
		time.Sleep(time.Millisecond) // so that BLPOP usually waits
		redistest.WantErr(t, rdb.RPush(t.Context(), "list", "v").Err())
		redistest.Expect(t, <-popped, nil, "BLPOP: %v")
		const script = `
			local began = redis.call('TIME')
			for _ = 1, 1000 do redis.call('GET', 'k') end
			local ended = redis.call('TIME')
			return {began[1], began[2], ended[1], ended[2]}`
		var last string
		for range 2 {
			times, err := rdb.Eval(t.Context(), script, nil).StringSlice()
			redistest.CheckNow(t, err == nil && times[0]+times[1] == times[2]+times[3], "times in a script: %v, %v", times, err)
			now := times[0] + "." + times[1]
			redistest.Check(t, now != last, "the clock stands at %s", now)
			last = now
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// A pipeline reaches the server as a whole, however long it and its replies are.
func TestLongPipeline(t *testing.T) {
	both(t, func(t *testing.T) {
		rdb := leaseholdtest.Client(t)
		for _, c := range []struct{ commands, bytes int }{{11, 400}, {1000, 10}, {1000, 4096}, {3, 2 << 20}} {
			value := strings.Repeat("v", c.bytes)
			sent, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				for i := range c.commands {
					p.Set(t.Context(), fmt.Sprint("k", i), value, 0)
					p.Get(t.Context(), fmt.Sprint("k", i))
				}
				return nil
			})
			if err != nil {
				t.Errorf("%d commands with %d bytes each: %v", c.commands, c.bytes, err)
				continue
			}
			for i, cmd := range sent {
				get, ok := cmd.(*redis.StringCmd)
				redistest.Check(t, !ok || get.Val() == value, "command %d of %d with %d bytes each: another value", i, c.commands, c.bytes)
			}
		}
	})
}

// Thousands of callers of two processes ask at once. Each of them is served, and each key is loaded once. Outside of a
// bubble they are fewer: there the bounds of the calls count, and a busy machine needs some 20 ms per script.
func TestManyCallersAtOnce(t *testing.T) {
	ask := func(t *testing.T, keys int) {
		var done sync.WaitGroup
		var loads atomic.Int64
		start := make(chan struct{})
		for _, rdb := range leaseholdtest.Clients(t, 2) {
			prices := redistest.Must(singleflight.New(rdb, singleflight.Config[string]{Name: "prices", TTL: time.Minute}))(t)
			defer prices.Close(t.Context())
			for i := range 5 * keys / 2 {
				done.Go(func() {
					<-start
					key := fmt.Sprint("article ", i%keys)
					v, err := prices.Do(t.Context(), key, func(context.Context) (string, error) { loads.Add(1); return key, nil })
					redistest.Check(t, err == nil && v == key, "got %q for %q, %v", v, key, err)
				})
			}
		}
		close(start)
		done.Wait()
		redistest.Expect(t, int(loads.Load()), keys, "%d loads")
	}
	t.Run("outside a bubble", func(t *testing.T) { ask(t, 40) })
	t.Run("inside a bubble", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { ask(t, 400) }) })
}
