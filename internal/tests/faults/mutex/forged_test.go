package mutex

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// Two handles hold locks and wait for some. All that was sent to them before, of revokes and hand-overs, is
// sent a hundred times more, and hints for all that they ever asked for: no lock and no wait ends by that.
func TestForgedAndReplayedMessagesInNumbers(t *testing.T) {
	const locks, waits, before = 200, 20, 30
	srv := redistest.Shared(t, redistest.NeedServers(t)[0])
	s := newSite(t, srv.Client())
	wire := &harness.Wire{}
	handle := func() *mutex.Mutex {
		rdb := srv.Client()
		rdb.AddHook(wire)
		return s.handle(rdb, mutex.Config{})
	}
	two, operator := []*mutex.Mutex{handle(), handle()}, s.handle(srv.Client(), mutex.Config{})
	lock := func(h *mutex.Mutex, key string) *mutex.Lock { return redistest.Must(h.Lock(t.Context(), key))(t) }
	var channels []string
	for i, h := range two {
		l := lock(h, fmt.Sprint("first", i))
		member := s.RDB.ZRange(t.Context(), s.On(t, l.Key()).Part("holders"), 0, 0).Val()[0]
		owner, _, _ := strings.Cut(member, ".")
		channels = append(channels, "leasehold:inbox:"+owner)
		redistest.WantErr(t, l.Unlock())
	}
	sub := s.RDB.Subscribe(t.Context(), channels...)
	for range channels {
		redistest.Must(sub.Receive(t.Context()))(t)
	}
	heard := sub.Channel()
	defer func() {
		_ = sub.Close()
		for range heard { // so that its goroutine ends
		}
	}()

	// What went before: hand-overs by an unlock or by a revoke, and revoked waits.
	revoked := 0
	for i := range before {
		key := fmt.Sprint("before", i)
		l, next := lock(two[i%2], key), locking(two[1-i%2], key)
		s.On(t, key).WaitQueued(1)
		id := l.ID()
		if i%3 == 2 {
			id = redistest.Must(operator.Inspect(t.Context(), key))(t).Waiters[0].ID
		}
		if i%3 > 0 {
			redistest.WantErr(t, operator.Revoke(t.Context(), key, id, "it hangs"))
			revoked++
		}
		if i%3 == 2 {
			redistest.WantErr(t, harness.Got(t, redistest.Soon, "the end of a wait", next).Err, leasehold.ErrRevoked)
		}
		if err := l.Unlock(); i%3 != 1 {
			redistest.WantErr(t, err)
		}
		if i%3 != 2 {
			redistest.WantErr(t, within(t, redistest.Soon, next).Unlock())
		}
	}
	var again []*redis.Message
	for hints := 0; hints < revoked; {
		m := redistest.Get(t, "a message", heard)
		if again = append(again, m); strings.HasPrefix(m.Payload, "R ") {
			hints++
		}
	}
	redistest.AtLeast(t, len(again), revoked+before/3, "%d messages were heard")

	var held []*mutex.Lock
	for i := range locks {
		held = append(held, lock(two[i%2], fmt.Sprint("held", i)))
	}
	var waiting []<-chan result
	for i := range waits {
		waiting = append(waiting, locking(two[1-i%2], held[i].Key()))
		s.On(t, held[i].Key()).WaitQueued(1)
	}
	redistest.Eventually(t, "the holders' subscriptions", func() bool {
		all := s.RDB.PubSubNumSub(t.Context(), channels...).Val()
		return all[channels[0]] == 2 && all[channels[1]] == 2 // and ours
	})
	asked, began := wire.Sent("renew"), time.Now()
	pipe := s.RDB.Pipeline()
	for range 100 {
		for _, m := range again {
			pipe.Publish(t.Context(), m.Channel, m.Payload)
		}
	}
	for n := range 20 * 2 * (locks + before + waits) { // more than each has asked for, twenty times
		for _, channel := range channels {
			pipe.Publish(t.Context(), channel, fmt.Sprint("R ", n/20))
		}
	}
	redistest.Must(pipe.Exec(t.Context()))(t)
	redistest.Eventually(t, "a question for each", func() bool { return wire.Sent("renew") >= asked+locks })
	most := (locks + waits) * (3 + int(time.Since(began)/(50*time.Millisecond)))
	redistest.AtMost(t, wire.Sent("renew")-asked, most, "%d questions")
	for _, l := range held {
		redistest.Expect(t, errors.Join(context.Cause(l.Context()), l.Unlock()), nil, "%s: %v", l.Key())
	}
	for _, w := range waiting {
		redistest.NoError(t, within(t, redistest.Soon, w).Unlock())
	}
}
