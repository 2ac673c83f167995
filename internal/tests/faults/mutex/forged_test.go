package mutex

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// overheard is what was sent to some channels.
type overheard struct {
	mu  sync.Mutex
	all []*redis.Message
}

func overhear(t *testing.T, rdb redis.UniversalClient, channels ...string) *overheard {
	t.Helper()
	o := &overheard{}
	sub := rdb.Subscribe(t.Context(), channels...)
	for range channels {
		redistest.Must(sub.Receive(t.Context()))(t)
	}
	over := make(chan struct{})
	t.Cleanup(func() { _ = sub.Close(); <-over })
	go func() {
		defer close(over)
		for m := range sub.Channel() {
			o.mu.Lock()
			o.all = append(o.all, m)
			o.mu.Unlock()
		}
	}()
	return o
}

// messages are those heard so far: how many are hints, too.
func (o *overheard) messages() (all []*redis.Message, hints int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range o.all {
		if strings.HasPrefix(m.Payload, "R ") {
			hints++
		}
	}
	return o.all[:len(o.all):len(o.all)], hints
}

// Two handles hold 200 locks and wait for 20. All that was ever sent to them, of earlier
// revokes and hand-overs, is sent a hundred times more, and hints for all that they ever
// asked for: no lock and no wait ends by that.
func TestForgedAndReplayedMessagesInNumbers(t *testing.T) {
	const locks, waits, before = 200, 20, 30
	srv := redistest.Shared(t, redistest.NeedServers(t)[0])
	s := newSite(t, srv.Client())
	var questions atomic.Int64
	handle := func() *mutex.Mutex {
		p := redistest.NewProxy(t, srv.Addr())
		p.SetHook(func(ev redistest.Event) redistest.Action {
			if ev.Stage == redistest.OnRequest && harness.Script(ev.Cmd) == "renew" {
				questions.Add(1)
			}
			return redistest.Pass
		})
		return s.handle(p.Client(), mutex.Config{})
	}
	two, operator := []*mutex.Mutex{handle(), handle()}, s.handle(srv.Client(), mutex.Config{})
	part := func(key, part string) string { return "leasehold:mtx:{" + s.Family + ":" + key + "}:" + part }
	lock := func(h *mutex.Mutex, key string) *mutex.Lock { return redistest.Must(h.Lock(t.Context(), key))(t) }
	queued := func(key string, n int64) {
		redistest.Eventually(t, "a waiter", func() bool { return s.RDB.ZCard(t.Context(), part(key, "queue")).Val() == n })
	}
	revoke := func(key, id string) { redistest.WantErr(t, operator.Revoke(t.Context(), key, id, "it hangs")) }
	var channels []string
	for i, h := range two {
		key := fmt.Sprint("first", i)
		l := lock(h, key)
		owner, _, _ := strings.Cut(s.RDB.ZRange(t.Context(), part(key, "holders"), 0, 0).Val()[0], ".")
		channels = append(channels, "leasehold:inbox:"+owner)
		redistest.WantErr(t, l.Unlock())
	}
	heard := overhear(t, s.RDB, channels...)

	// What went before: hand-overs, and revokes of holders and waiters.
	revoked := 0
	for i := range before {
		key := fmt.Sprint("before", i)
		l := lock(two[i%2], key)
		next := locking(two[1-i%2], key)
		queued(key, 1)
		switch i % 3 {
		case 0: // handed over
			redistest.WantErr(t, l.Unlock())
		case 1: // by a revoke
			revoke(key, l.ID())
			revoked++
		default: // a waiter's place
			state := redistest.Must(operator.Inspect(t.Context(), key))(t)
			revoke(key, state.Waiters[0].ID)
			revoked++
			r := harness.Got(t, redistest.Soon, "the end of a wait", next)
			redistest.CheckNow(t, errors.Is(r.Err, leasehold.ErrRevoked), "a revoked waiter got %v", r.Err)
			redistest.WantErr(t, l.Unlock())
			continue
		}
		if got := within(t, redistest.Soon, next); i%6 == 0 {
			revoke(key, got.ID())
			revoked++
		} else if err := got.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Eventually(t, "the hints", func() bool { _, hints := heard.messages(); return hints == revoked })

	var held []*mutex.Lock
	for i := range locks {
		held = append(held, lock(two[i%2], fmt.Sprint("held", i)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waiting []<-chan result
	for i := range waits {
		key := fmt.Sprint("held", i)
		waiting = append(waiting, harness.Go(func() (*mutex.Lock, error) { return two[1-i%2].Lock(ctx, key) }))
		queued(key, 1)
	}
	redistest.Eventually(t, "the holders' subscriptions", func() bool {
		all := s.RDB.PubSubNumSub(t.Context(), channels...).Val()
		return all[channels[0]] == 2 && all[channels[1]] == 2 // and ours
	})

	again, _ := heard.messages()
	asked, began, sent := questions.Load(), time.Now(), 0
	pipe := s.RDB.Pipeline()
	send := func(channel, text string) {
		pipe.Publish(t.Context(), channel, text)
		if sent++; pipe.Len() == 200 {
			redistest.Must(pipe.Exec(t.Context()))(t)
		}
	}
	for range 100 {
		for _, m := range again {
			send(m.Channel, m.Payload)
		}
	}
	for range 20 {
		for seq := range 2 * (locks + before + waits) { // more than each has asked for
			for _, channel := range channels {
				send(channel, "R "+strconv.Itoa(seq))
			}
		}
	}
	redistest.Must(pipe.Exec(t.Context()))(t)
	took := time.Since(began)
	redistest.Eventually(t, "a question for each", func() bool { return questions.Load() >= asked+locks })
	lost := 0
	for _, l := range held {
		if err := context.Cause(l.Context()); err != nil {
			lost++
			t.Errorf("%s: %v", l.Key(), err)
		}
	}
	for i, w := range waiting {
		select {
		case r := <-w:
			t.Errorf("wait %d ended: %v, %v", i, r.Value, r.Err)
		default:
		}
	}
	if n, most := questions.Load()-asked, int64(locks+waits)*(3+int64(time.Since(began)/(50*time.Millisecond))); n > most {
		t.Errorf("%d questions in %v; want at most %d", n, time.Since(began), most)
	}
	t.Logf("%d messages in %v, %d of them replayed: %d questions, %d locks lost", sent, took.Round(time.Millisecond), 100*len(again), questions.Load()-asked, lost)
	for _, l := range held {
		redistest.Expect(t, l.Unlock(), nil, "%s: %v", l.Key())
	}
	for _, w := range waiting {
		redistest.NoError(t, within(t, redistest.Soon, w).Unlock())
	}
}
