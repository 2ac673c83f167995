package call

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// echo answers with its argument. It writes, so that only a primary serves it.
var echo = NewScript("echo", `redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000)
return {tonumber(ARGV[1])}`)

func echoed(key string, n int) *Call { return New(echo, 1, key, n) }

// wantEcho checks the outcome of an echo.
func wantEcho(t *testing.T, n int, reply []int64, err error) {
	t.Helper()
	redistest.Check(t, err == nil && slices.Equal(reply, []int64{int64(n)}), "call %d: %v, %v; want its number", n, reply, err)
}

// newReady is a Client for a test, which has checked the server.
func newReady(t testing.TB, rdb redis.UniversalClient) *Client {
	t.Helper()
	c := redistest.Must(NewClient(rdb))(t)
	redistest.WantErr(t, redistest.ErrorOf(c.Time(context.Background(), "ready")))
	return c
}

// newBubble is such a Client, in a bubble, and the client that it is of.
func newBubble(t *testing.T, mod ...func(*redis.Options)) (*redis.Client, *Client) {
	t.Helper()
	_, newClient := redistest.Bubble(t)
	rdb := newClient(mod...)
	return rdb, newReady(t, rdb)
}

func isOurs(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") }

// ours is a hook around the commands of this package, sent alone or together.
func ours(around redistest.Around) redistest.Around {
	return func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
		if !isOurs(cmds[0]) {
			return send()
		}
		return around(ctx, cmds, send)
	}
}

// sends lets everything pass.
func sends(_ context.Context, _ []redis.Cmder, send func() error) error { return send() }

// held is a Client in a bubble whose calls, if they are sent alone, do not return
// before the gate opens. It counts what is sent.
type held struct {
	*Client
	gate chan struct{}
	done sync.WaitGroup
	open func()
	// What happens around what is sent.
	alone, together redistest.Around

	mu        sync.Mutex
	n         int        // sent alone
	pipelines [][]string // the keys of each
}

func newHeld(t *testing.T) *held {
	rdb, c := newBubble(t)
	h := &held{Client: c, gate: make(chan struct{}), together: sends}
	h.open = sync.OnceFunc(func() { close(h.gate) })
	t.Cleanup(h.open)
	h.alone = func(_ context.Context, _ []redis.Cmder, send func() error) error {
		h.mu.Lock()
		h.n++
		h.mu.Unlock()
		<-h.gate
		return send()
	}
	alone := func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
		return h.alone(ctx, cmds, send)
	}
	together := func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
		var keys []string
		for _, cmd := range cmds {
			key, _ := cmd.Args()[3].(string)
			keys = append(keys, key)
		}
		h.mu.Lock()
		h.pipelines = append(h.pipelines, keys)
		h.mu.Unlock()
		return h.together(ctx, cmds, send)
	}
	rdb.AddHook(redistest.Apart{Around: ours(alone), Together: ours(together)})
	return h
}

func (h *held) sent() (alone int, pipelines [][]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n, slices.Clone(h.pipelines)
}

// do makes a call on a goroutine of its own.
func (h *held) do(ctx context.Context, one *Call, then func([]int64, error)) {
	h.done.Go(func() { then(h.Do(ctx, one)) })
}

// echoes makes n calls and checks what they come to.
func (h *held) echoes(t *testing.T, n int) {
	for i := range n {
		h.do(context.Background(), echoed(fmt.Sprint("k", i), i), func(reply []int64, err error) { wantEcho(t, i, reply, err) })
	}
}

const closely = 5 * time.Millisecond

// busy makes as many calls as are sent alone, which do not return before the gate opens: what follows waits in the queue.
func (h *held) busy(t *testing.T) {
	h.echoes(t, maxInFlight)
	synctest.Wait()
}

// finish opens the gate, and returns when all calls have.
func (h *held) finish() {
	h.open()
	h.done.Wait()
}

// wantFirst checks the keys of the pipeline that was sent first.
func (h *held) wantFirst(t *testing.T, want string) {
	t.Helper()
	_, pipelines := h.sent()
	redistest.Check(t, len(pipelines) != 0 && strings.Join(pipelines[0], " ") == want, "sent %v; want %s first", pipelines, want)
}

// withHeld runs a test with such a Client, in a bubble.
func withHeld(t *testing.T, test func(t *testing.T, h *held)) {
	synctest.Test(t, func(t *testing.T) { test(t, newHeld(t)) })
}
