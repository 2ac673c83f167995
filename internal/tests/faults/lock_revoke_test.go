package faults

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// A holder of 0.2 s or more is told of a revoke within milliseconds.
func TestHolderIsToldOfARevokeAtOnce(t *testing.T) {
	srv := redistest.Shared(t, redistest.NeedServers(t)[0])
	s := newSite(t, harness.Locks, srv.Client())
	holder, operator := s.mutex(srv.Client(), mutex.Config{}), s.mutex(srv.Client(), mutex.Config{})
	const locks = 200
	var held []*mutex.Lock
	for i := range locks {
		held = append(held, redistest.Must(holder.Lock(t.Context(), fmt.Sprint(i)))(t))
	}
	redistest.Eventually(t, "the holder's subscription", func() bool {
		return len(s.RDB.PubSubChannels(t.Context(), "leasehold:inbox:*").Val()) > 0
	})
	time.Sleep(300 * time.Millisecond) // what the new subscription made the holder ask is answered
	var told []time.Duration
	for i, l := range held {
		ended := make(chan time.Time, 1)
		context.AfterFunc(l.Context(), func() { ended <- time.Now() })
		redistest.WantErr(t, operator.Revoke(t.Context(), fmt.Sprint(i), l.ID(), "r"))
		revoked := time.Now()
		told = append(told, max(0, redistest.Get(t, "the end of the Context", ended).Sub(revoked)))
		redistest.WantErr(t, context.Cause(l.Context()), leasehold.ErrRevoked)
	}
	slices.Sort(told)
	p99 := told[locks*99/100]
	t.Logf("told %v after Revoke returned (p99)", p99)
	// Without the message it would be a third of the TTL, 10 s.
	redistest.AtMost(t, p99, harness.Slack, "the 99th of 100 holders was told after %v")
}

// Every subscription of a handle with many locks is cut: the handle renews each lock, many in a round trip, and no
// lock is lost. On a Cluster, where each key has a subscription of its own, too.
func TestLocksAreRenewedTogetherAfterACut(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) { // the embedded one has no CLIENT KILL
		s := newSite(t, harness.Locks, target.Client(t))
		rdb := target.Client(t)
		var renewed, trips atomic.Int64
		h := &hook{around: func(cmds []redis.Cmder, send func() error) error {
			n := int64(0)
			for _, cmd := range cmds {
				if harness.CommandName(cmd) == "renew" {
					n++
				}
			}
			if renewed.Add(n); n > 0 {
				trips.Add(1)
			}
			return send()
		}}
		h.on.Store(true)
		h.add(rdb)
		m := s.mutex(rdb, mutex.Config{TTL: time.Hour}) // no other renewal is due
		const locks = 500
		var held []*mutex.Lock
		for i := range locks {
			held = append(held, redistest.Must(m.Lock(t.Context(), fmt.Sprint(i)))(t))
		}
		id, nodes := held[0].ID()[:8], harness.NewOn(t, harness.Locks, s.RDB)
		subscriptions := func() (n int) {
			nodes.OnEach(func(ctx context.Context, node redis.Cmdable) error {
				n += len(node.PubSubChannels(ctx, "leasehold:*inbox:"+id+"*").Val())
				n += len(node.PubSubShardChannels(ctx, "leasehold:*inbox:"+id+"*").Val())
				return nil
			})
			return n
		}
		want := 1
		if target.Kind == redistest.KindCluster {
			want = locks
		}
		redistest.Eventually(t, "the holders' subscriptions", func() bool { return subscriptions() == want })
		quiet := func() bool { // no renewal for half a second
			before := renewed.Load()
			time.Sleep(500 * time.Millisecond)
			return renewed.Load() == before
		}
		redistest.Eventually(t, "the first renewals", quiet)
		renewed.Store(0)
		trips.Store(0)
		nodes.OnEach(func(ctx context.Context, node redis.Cmdable) error {
			return node.ClientKillByFilter(ctx, "TYPE", "pubsub").Err()
		})
		redistest.Eventually(t, "a renewal of each lock", func() bool { return renewed.Load() >= locks })
		redistest.Eventually(t, "the last renewals", quiet)
		t.Logf("%d renewals in %d round trips", renewed.Load(), trips.Load())
		// A hundred at a time on a single server; on a Cluster as the subscriptions come.
		redistest.Check(t, trips.Load() <= locks/5, "%d renewals took %d round trips; want at most %d", renewed.Load(), trips.Load(), locks/5)
		for _, l := range held {
			redistest.WantErr(t, l.Unlock())
		}
	})
}
