package singleflight

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A load that got no permit since Redis was away, and has to wait for a slot, asks again, also if Redis was back before
// the wait began. Else it would run without a permit, long after the outage.
func TestLoadAsksForItsPermitAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		g := redistest.Must(New(client(), Config[string]{Name: "slots", TTL: time.Minute, MaxLoads: 1, OnUnavailable: LoadLocally}))(t)
		for len(g.slots) < cap(g.slots) {
			g.slots <- struct{}{}
		}
		d := &load[string]{g: g, ctx: t.Context(), flights: []*flight[string]{{}}}
		isBack, err := d.takeSlot(true)
		redistest.Check(t, isBack && err == nil, "it may ask again: %v, %v", isBack, err)
		redistest.WantErr(t, g.Close(t.Context()))
	})
}

// A loader may return before the time-out of its load is noticed, with its ctx's error, or one of its own, as a driver
// does about a query that was cut off. It is the same time-out, and no deadline of a caller's. A loader's own deadline
// is the loader's error.
func TestTimeOutIsNoDeadlineOfTheCaller(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 0, ErrLoadTimeout)
	defer cancel()
	d := &load[string]{g: &Group[string]{}}
	for _, err := range []error{ctx.Err(), errors.New("the query was cut off")} {
		got := d.lookAt(ctx, &callersCode{}, err)
		redistest.Check(t, got == timedOut, "the failure is %v", got.err)
	}
	got := d.lookAt(t.Context(), &callersCode{}, context.DeadlineExceeded)
	redistest.Check(t, got.kind == envelope.Failure && errors.Is(got.err, context.DeadlineExceeded), "the failure is %v", got.err)
}

// What crosses of an error is at most 4 KiB, in whole characters.
func TestLongErrorsAreCut(t *testing.T) {
	for name, text := range map[string]string{
		"just": strings.Repeat("x", 4096), "long": strings.Repeat("x", 100_000), "cut": "xx" + strings.Repeat("€", 5000),
		"bytes": "\xff\x00", "many bytes": strings.Repeat("\xffx", 5000),
	} {
		got := errorText(text)
		redistest.Check(t, utf8.ValidString(got) && len(got) <= 4096 && len(got) >= min(len(text), 2000), "%s: %d bytes, %.20q…", name, len(got), got)
		redistest.Check(t, !utf8.ValidString(text) || strings.HasPrefix(text, got), "%s: %.40q… is no part of it", name, got)
	}
}

// Of two Invalidates of one handle, the first one's reply may come last. What was published
// between them, and is still in the client's own cache, stays refused.
func TestInvalidateRepliesOutOfOrder(t *testing.T) {
	x := newInvalidatedAt(time.Minute)
	x.raise("k", 20)
	x.raise("k", 10)
	redistest.Check(t, x.refuses("k", 15) && x.refuses("k", 20), "a value from before the later Invalidate is served")
	redistest.Check(t, !x.refuses("k", 21) && !x.refuses("other", 15), "a newer value, or that of another key, is refused")
}

// Over a long way a connection takes half of a look-up's bound. The first look-ups wait for one question for the time,
// and then each for a connection of its own: all are answered.
func TestFirstLookUpsOverALongWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		rdb := client(func(o *redis.Options) {
			dial := o.Dialer
			o.ConnMaxIdleTime = time.Nanosecond // none is used again
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				time.Sleep(call.Bound/2 + 100*time.Millisecond)
				return dial(ctx, network, addr)
			}
		})
		g := redistest.Must(New(rdb, Config[string]{Name: "far", TTL: time.Minute}))(t)
		far := redistest.Must(g.target("test", "k"))(t)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { redistest.Check(t, g.lookUp(t.Context(), far).verdict == miss, "a look-up failed") })
			all.Go(func() {
				many := g.lookUpMany(t.Context(), []*request[string]{{target: far}})
				redistest.Check(t, many[0].verdict == miss, "a look-up of many failed")
			})
		}
		all.Wait()
		redistest.WantErr(t, g.Close(t.Context()))
	})
}
