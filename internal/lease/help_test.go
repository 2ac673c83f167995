package lease_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// newLocks makes a handle of locks that is closed at the end of the test.
func newLocks(t *testing.T, rdb redis.UniversalClient, ttl time.Duration) *lease.Manager {
	t.Helper()
	m := redistest.Must(lease.New(rdb, lockConfig(ttl)))(t)
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

// lockConfig is a handle of locks.
func lockConfig(ttl time.Duration) lease.Config {
	family := keys.Family{Kind: keys.Mutex, Name: "t"}
	return lease.Config{Package: "mutex", Family: family, Protocol: permits.Family{Family: family, Fenced: true}, TTL: ttl}
}

func take(ctx context.Context, m *lease.Manager, key string) (*lease.Lease, error) {
	l := new(lease.Lease)
	_, err := m.Acquire(ctx, lease.Attempt{Op: "lock", Key: key, Permits: 1, Limit: 1, Wait: true}, l)
	return l, err
}

func mustTake(t *testing.T, m *lease.Manager, key string) *lease.Lease {
	t.Helper()
	l := redistest.Must(take(context.Background(), m, key))(t)
	return l
}

// warm makes all scripts known to the server, so that each call is one command.
func warm(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	m := newLocks(t, rdb, time.Minute)
	l := mustTake(t, m, "warm")
	got := waiting(t, t.Context(), m, "warm")
	m.AskAll()
	synctest.Wait() // else the waiter may be granted before it asks
	redistest.WantErr(t, l.Extend(t.Context(), time.Minute))
	_ = l.Release("unlock")
	_ = (<-got).Release("unlock")
	redistest.WantErr(t, m.Close(t.Context()))
}

// waiting takes in the background, and returns once it is queued.
func waiting(t *testing.T, ctx context.Context, m *lease.Manager, key string) <-chan *lease.Lease {
	t.Helper()
	before := m.Queued()
	got := make(chan *lease.Lease, 1)
	go func() {
		if l, err := take(ctx, m, key); err == nil {
			got <- l
		} else {
			close(got)
		}
	}()
	for m.Queued() <= before {
		time.Sleep(time.Millisecond)
	}
	return got
}

// inBubble runs a test in a bubble with a handle of locks, and its client.
func inBubble(t *testing.T, ttl time.Duration, test func(t *testing.T, rdb *redis.Client, m *lease.Manager)) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		rdb := client()
		warm(t, rdb)
		test(t, rdb, newLocks(t, rdb, ttl))
	})
}

// script returns the name of the script that cmd runs, or "".
func script(cmd redis.Cmder) string {
	if strings.HasPrefix(cmd.Name(), "eval") {
		return call.ScriptName(cmd.Args()[1].(string))
	}
	return ""
}

// recorder is a hook that notes which scripts are sent, and may spoil them, or their replies.
type recorder struct {
	mu    sync.Mutex
	calls map[string]int // by script
	spoil func(cmd redis.Cmder) error
	reply func(cmd redis.Cmder) error // set before any call
}

func record(rdb redis.UniversalClient) *recorder {
	r := &recorder{calls: map[string]int{}}
	rdb.AddHook(redistest.Around(r.around))
	return r
}

// around sends nothing if a command is spoilt.
func (r *recorder) around(_ context.Context, cmds []redis.Cmder, send func() error) (err error) {
	for _, cmd := range cmds {
		if spoilt := r.note(cmd); spoilt != nil {
			cmd.SetErr(spoilt)
			err = spoilt
		}
	}
	if err != nil {
		return err
	}
	err = send()
	for _, cmd := range cmds {
		if r.reply == nil {
			break
		} else if lost := r.reply(cmd); lost != nil {
			cmd.SetErr(lost)
			err = lost
		}
	}
	return err
}

func (r *recorder) note(cmd redis.Cmder) error {
	r.mu.Lock()
	r.calls[script(cmd)]++
	spoil := r.spoil
	r.mu.Unlock()
	if spoil != nil {
		return spoil(cmd) // not under the lock: it may sleep
	}
	return nil
}

func (r *recorder) count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[name]
}

func (r *recorder) spoilWith(fn func(cmd redis.Cmder) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spoil = fn
}

var errCut = errors.New("the network is cut") // no answer: the outcome is unknown
