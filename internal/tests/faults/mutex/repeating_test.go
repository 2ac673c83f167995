package mutex

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// repeater is a handle on a proxy, whose client does not wait long, and has a hook that sends again what failed.
func repeater(t *testing.T, version redistest.Version) (*site, *redistest.Proxy, *mutex.Mutex) {
	server := redistest.StartServer(t, version)
	p := redistest.NewProxy(t, server.Addr())
	rdb := p.Client(func(o *redis.Options) { o.ReadTimeout = 500 * time.Millisecond })
	h := &hook{around: func(_ []redis.Cmder, send func() error) error {
		if send() == nil {
			return nil
		}
		return send()
	}}
	h.on.Store(true)
	rdb.AddHook(h)
	s := newSite(t, server.Client())
	m := s.handle(rdb, mutex.Config{TTL: time.Minute})
	redistest.WantErr(t, redistest.Must(m.Lock(t.Context(), "warm"))(t).Unlock())
	return s, p, m
}

// The first copy of an enter is under way while a hook sends a second one. The second one is
// granted and given back, and then the first one arrives: it must take nothing.
func TestEnterThatAHookRepeatedLeavesNoPhantom(t *testing.T) {
	version := redistest.NeedServers(t)[0]
	for name, lock := range map[string]func(h *mutex.Mutex, key string) (*mutex.Lock, error){
		"alone":      func(h *mutex.Mutex, key string) (*mutex.Lock, error) { return h.Lock(context.Background(), key) },
		"cancelable": func(h *mutex.Mutex, key string) (*mutex.Lock, error) { return h.Lock(t.Context(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, h := repeater(t, version)
			first := p.HoldRequest(harness.Does("enter"), 1)
			redistest.WantErr(t, redistest.Must(lock(h, s.Key))(t).Unlock())
			answered := make(chan []int64, 1)
			p.SetHook(func(ev redistest.Event) redistest.Action {
				if harness.Script(ev.Cmd) == "enter" && ev.Stage == redistest.OnReply {
					select {
					case answered <- harness.Integers(ev.Reply):
					default:
					}
				}
				return redistest.Pass
			})
			first.Release()
			v := redistest.Get(t, "the answer to the first copy", answered)
			redistest.Check(t, len(v) != 0 && v[0] != 1, "the first copy of the enter was answered %v; want that it takes nothing", v)
			s.free(10 * time.Second)
		})
	}
}

// The reply to a leave is lost, and a hook sends the leave again: the lock was held and given
// back, and Unlock says so.
func TestUnlockThatAHookRepeatedIsNoLoss(t *testing.T) {
	version := redistest.NeedServers(t)[0]
	s, p, h := repeater(t, version)
	l := redistest.Must(h.Lock(t.Context(), s.Key))(t)
	lost := p.EatReply(harness.Does("leave"), 1)
	redistest.Expect(t, l.Unlock(), nil, "Unlock of a lock that was held: %v")
	redistest.Get(t, "the loss of a reply", lost.Fired())
}
