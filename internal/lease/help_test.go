package lease

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// newLocks makes a handle of locks that is closed at the end of the test.
func newLocks(t *testing.T, rdb redis.UniversalClient, ttl time.Duration) *Manager {
	t.Helper()
	m, err := New(rdb, Config{Package: "mutex", Family: keys.Family{Kind: keys.Mutex, Name: "t"}, Fenced: true, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

func take(ctx context.Context, m *Manager, key string) (*Lease, error) {
	l := new(Lease)
	return l, m.Acquire(ctx, Attempt{Op: "lock", Key: key, Permits: 1, Limit: 1, Wait: true}, l)
}

func mustTake(t *testing.T, m *Manager, key string) *Lease {
	t.Helper()
	l, err := take(context.Background(), m, key)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// warm makes all scripts known to the server, so that each call is one command.
func warm(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	m := newLocks(t, rdb, time.Minute)
	l := mustTake(t, m, "warm")
	got := waiting(t, t.Context(), m, "warm")
	m.askAll()
	if err := l.Extend(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	_ = l.Release("unlock")
	_ = (<-got).Release("unlock")
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// waiting takes in the background, and returns once it is queued.
func waiting(t *testing.T, ctx context.Context, m *Manager, key string) <-chan *Lease {
	t.Helper()
	m.mu.Lock()
	before := m.queued()
	m.mu.Unlock()
	got := make(chan *Lease, 1)
	go func() {
		if l, err := take(ctx, m, key); err == nil {
			got <- l
		} else {
			close(got)
		}
	}()
	for {
		m.mu.Lock()
		n := m.queued()
		m.mu.Unlock()
		if n > before {
			return got
		}
		time.Sleep(time.Millisecond)
	}
}

func (m *Manager) queued() (n int) {
	for _, g := range m.groups {
		n += len(g.waiters)
	}
	return n
}

// recorder is a hook that notes which scripts are sent, and may spoil them.
type recorder struct {
	mu    sync.Mutex
	calls map[string]int // by the first key's resource and script
	spoil func(cmd redis.Cmder) error
}

func record(rdb redis.UniversalClient) *recorder {
	r := &recorder{calls: map[string]int{}}
	rdb.AddHook(r)
	return r
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := r.note(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var err error
		for _, cmd := range cmds {
			if e := r.note(cmd); e != nil {
				cmd.SetErr(e)
				err = e
			}
		}
		if err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

func (r *recorder) note(cmd redis.Cmder) error {
	r.mu.Lock()
	name := cmd.Name()
	if strings.HasPrefix(name, "eval") {
		name = engine.ScriptName(cmd.Args()[1].(string))
	}
	r.calls[name]++
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
