package mutex

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

func init() {
	// turns has goroutines that lock in turn, with LocalFor, write under each lock, and
	// say its token before they unlock: address, family, key, TTL, LocalFor.
	redistest.RegisterChild("turns", func(args []string) int {
		rdb := harness.Dial(args[0])
		ttl, _ := time.ParseDuration(args[3])
		localFor, _ := time.ParseDuration(args[4])
		h, err := mutex.New(rdb, mutex.Config{Name: args[1], TTL: ttl, LocalFor: localFor})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		g, err := mutex.NewGuard(rdb, mutex.GuardConfig{Name: args[1]})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					_ = h.Do(context.Background(), args[2], func(_ context.Context, token uint64) error {
						fmt.Println("turn", token)
						return g.Set(context.Background(), args[2], token, "turn", 0) // refused once it is stale
					})
				}
			})
		}
		all.Wait()
		return 0
	})
}

// readTurns reads what the child says until it has said n tokens, which rise, and returns
// the last one.
func readTurns(t *testing.T, child *redistest.Child, last uint64, n int) uint64 {
	t.Helper()
	for range n {
		token, err := strconv.ParseUint(child.Expect("turn"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if token <= last {
			t.Fatalf("token %d after %d", token, last)
		}
		last = token
	}
	return last
}

// A process is killed, or stopped for longer than its TTL, while its callers take turns on
// one lease. The next owner's token is above those of all turns, though no leave told the
// server of them, and nothing is written below it.
func TestProcessOfLocalTurnsEnds(t *testing.T) {
	for _, v := range redistest.NeedServers(t) {
		for _, localFor := range []string{"5ms", "500ms"} {
			t.Run(v.Name+"/"+localFor, func(t *testing.T) {
				srv := redistest.Shared(t, v)
				s := newSite(t, srv.Client())
				const ttl = time.Second
				h := s.handle(s.RDB, mutex.Config{})
				g, err := mutex.NewGuard(s.RDB, mutex.GuardConfig{Name: s.Family})
				if err != nil {
					t.Fatal(err)
				}
				child := redistest.StartChild(t, "turns", srv.Addr(), s.Family, s.Key, ttl.String(), localFor)
				last := readTurns(t, child, 0, 300)
				child.Pause()
				l := within(t, 10*time.Second, locking(h, s.Key))
				if err := g.Set(t.Context(), s.Key, l.Token(), "owner", 0); err != nil {
					t.Fatalf("a token of the stopped process is above that of the next owner: %v", err)
				}
				child.Resume()
				time.Sleep(ttl / 2) // whatever it still takes for its turn
				if got, _, err := g.Get(t.Context(), s.Key); err != nil || got != "owner" {
					t.Errorf("a stale turn wrote: %q, %v", got, err)
				}
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				for last <= l.Token() { // turns that were said before it was stopped, too
					last = readTurns(t, child, last, 1)
				}
				last = readTurns(t, child, last, 100)
				child.Kill()
				l = within(t, 10*time.Second, locking(h, s.Key))
				for {
					line, err := child.Line()
					if err != nil {
						break
					}
					var token uint64
					if _, err := fmt.Sscanf(line, "turn %d\n", &token); err == nil {
						last = max(last, token)
					}
				}
				if l.Token() <= last {
					t.Errorf("token %d after %d", l.Token(), last)
				}
				if err := g.Set(t.Context(), s.Key, l.Token(), "owner", 0); err != nil {
					t.Error(err)
				}
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				s.free(time.Second)
			})
		}
	}
}
