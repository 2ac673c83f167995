package semaphore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// span is a hold as its holder saw it: within the lease.
type span struct {
	key      string
	from, to time.Time
}

// mostSpans is the most spans at one moment, of all keys and of any one key.
func mostSpans(spans []span) (all int, key map[string]int) {
	type edge struct {
		at    time.Time
		key   string
		delta int
	}
	var edges []edge
	for _, s := range spans {
		edges = append(edges, edge{s.from, s.key, 1}, edge{s.to, s.key, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.delta - b.delta
	})
	now, total := map[string]int{}, 0
	key = map[string]int{}
	for _, e := range edges {
		total += e.delta
		now[e.key] += e.delta
		all, key[e.key] = max(all, total), max(key[e.key], now[e.key])
	}
	return all, key
}

// The slot of a family moves again and again while it is in use: every key is declared,
// so that no script stops half-way, and no limit is passed.
func TestTotalWhileItsSlotMoves(t *testing.T) {
	v := redistest.Newest(t)
	cluster := redistest.StartPatientCluster(t, v)
	rdb := cluster.Client()
	name := redistest.Name(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	var mu sync.Mutex
	var spans []span
	for range 2 {
		h := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: name, Limit: 2, Total: 3, TTL: 5 * time.Second}))(t)
		t.Cleanup(func() { harness.CloseWithin(t, closeBound, h) })
		for i := range 12 {
			key := fmt.Sprintf("k%d", i%3)
			workers.Go(func() {
				for ctx.Err() == nil {
					l, err := h.Acquire(ctx, key)
					if err != nil {
						redistest.Check(t, ctx.Err() != nil || errors.Is(err, leasehold.ErrUnavailable), "acquire: %v", err)
						continue
					}
					from := time.Now()
					time.Sleep(rand.N(6 * time.Millisecond))
					to := time.Now()
					if l.Context().Err() == nil {
						mu.Lock()
						spans = append(spans, span{key, from, to})
						mu.Unlock()
					}
					_ = l.Release()
				}
			})
		}
	}
	slot := fmt.Sprintf("leasehold:sem:{%s}:holders", name)
	const moves, turns = 6, 20 // so many turns, at least, before each move and after the last
	turned := func(n int) {
		redistest.Eventually(t, fmt.Sprint(n, " turns"), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(spans) >= n
		})
	}
	for i := range moves {
		turned((i + 1) * turns)
		from, to := cluster.NodeFor(slot), cluster.Nodes[i%3]
		if to.Addr() == from.Addr() {
			to = cluster.Nodes[(i+1)%3]
		}
		move := cluster.BeginMove(slot, to)
		time.Sleep(20 * time.Millisecond)
		move.MoveKeys()
		time.Sleep(20 * time.Millisecond)
		move.Finish()
	}
	turned((moves + 1) * turns)
	stop()
	workers.Wait()
	all, keys := mostSpans(spans)
	t.Logf("%d turns", len(spans))
	redistest.Check(t, all <= 3, "%d permits were held at once of 3", all)
	for key, n := range keys {
		redistest.Check(t, n <= 2, "%s held %d permits at once of 2", key, n)
	}
}
