package singleflight

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// No message arrives at all: the waiting caller asks for itself, and gets the value.
func TestFaultAllMessagesDropped(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		for name, long := range map[string]string{"short": "one", "long": strings.Repeat("one", 2000)} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := redistest.NewProxy(t, target.Addr())
				p.DropMessages(true)
				x := &replyLoser{
					groupSite: newFaultSite(t, target.Client(t)), p: p,
					subscribed: make(chan struct{}), asked: make(chan struct{}),
				}
				p.SetHook(x.hook)
				g, other := x.open(), x.group(x.RDB)
				gate := make(chan struct{})
				leads := startFetch(t.Context(), other, x.Key, x.gives(long, gate))
				harness.Until(t, 10*time.Second, func() error {
					if x.loads.Load() == 0 {
						return errors.New("no load")
					}
					return nil
				})
				follows := startFetch(t.Context(), g, x.Key, x.gives("two", gate))
				x.waitsFor() // from here on it asks every second and a half
				close(gate)
				x.wants("the loading caller", leads, 0, long)
				landed := time.Now()
				x.wants("the waiting caller", follows, 1500*time.Millisecond, long)
				t.Logf("the waiting caller had it %v after the loading caller", time.Since(landed))
				if n := x.loads.Load(); n != 1 {
					t.Errorf("%d loads; want 1", n)
				}
				x.clean(8 * time.Second)
			})
		}
	})
}

// The same where the load fails, which leaves nothing in the cache: a caller that waited for
// it gets its error, and doesn't load.
func TestFaultAllMessagesOfAFailureDropped(t *testing.T) {
	t.Parallel()
	redistest.EachSingle(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		p := redistest.NewProxy(t, target.Addr())
		p.DropMessages(true)
		x := &replyLoser{
			groupSite: newFaultSite(t, target.Client(t)), p: p,
			subscribed: make(chan struct{}), asked: make(chan struct{}),
		}
		p.SetHook(x.hook)
		g, other := x.open(), x.group(x.RDB)
		gate := make(chan struct{})
		fails := func(context.Context) (string, error) {
			x.loads.Add(1)
			<-gate
			return "", errors.New("code 4711")
		}
		leads := startFetch(t.Context(), other, x.Key, fails)
		harness.Until(t, 10*time.Second, func() error {
			if x.loads.Load() == 0 {
				return errors.New("no load")
			}
			return nil
		})
		follows := startFetch(t.Context(), g, x.Key, fails)
		x.waitsFor()
		close(gate)
		for who, done := range map[string]<-chan fetchResult{"the loading caller": leads, "the waiting caller": follows} {
			if r := harness.Got(t, 10*time.Second, who, done); r.err == nil || !strings.Contains(r.err.Error(), "code 4711") {
				t.Errorf("%s got %q, %v; want the loader's error", who, r.Value, r.err)
			}
		}
		if n := x.loads.Load(); n != 1 {
			t.Errorf("%d loads; want 1", n)
		}
	})
}
