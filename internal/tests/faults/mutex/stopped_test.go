package mutex

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

func init() {
	// holder locks, waits until that is over, and then writes as if it were not:
	// address, family, key, TTL.
	redistest.RegisterChild("holder", func(args []string) int {
		rdb := harness.Dial(args[0])
		ttl, _ := time.ParseDuration(args[3])
		h, err := mutex.New(rdb, mutex.Config{Name: args[1], TTL: ttl})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		l, err := h.Lock(context.Background(), args[2])
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		g, err := mutex.NewGuard(rdb, mutex.GuardConfig{Name: args[1]})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		if err := g.Set(context.Background(), args[2], l.Token(), "first", 0); err != nil {
			fmt.Println("error", err)
			return 1
		}
		fmt.Println("locked", l.Token())
		<-l.Context().Done()
		fmt.Println("over", errors.Is(context.Cause(l.Context()), leasehold.ErrLost))
		err = g.Set(context.Background(), args[2], l.Token(), "stale", 0)
		fmt.Println("fenced", errors.Is(err, leasehold.ErrFenced))
		fmt.Println("lost", errors.Is(l.Unlock(), leasehold.ErrLost))
		return 0
	})
}

// A holder is stopped for longer than its TTL. Another locks meanwhile, with a
// higher token. When the first goes on it is told at once, and what it writes
// before it hears of that is refused.
func TestStoppedHolderIsFenced(t *testing.T) {
	var all sync.WaitGroup
	for _, v := range redistest.NeedServers(t) {
		all.Go(func() {
			t.Run(v.Name, func(t *testing.T) {
				srv := redistest.Shared(t, v)
				s := newSite(t, srv.Client())
				const ttl = time.Second
				h := s.handle(s.RDB, mutex.Config{})
				child := redistest.StartChild(t, "holder", srv.Addr(), s.Family, s.Key, ttl.String())
				first, err := strconv.ParseUint(child.Expect("locked"), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				child.Pause()
				at := time.Now()
				l := within(t, 10*time.Second, locking(h, s.Key))
				t.Logf("locked %v after the holder was stopped", time.Since(at))
				if took := time.Since(at); took > ttl+harness.Slack {
					t.Errorf("the lock of a stopped holder was free after %v", took)
				}
				if l.Token() <= first {
					t.Errorf("token %d after %d", l.Token(), first)
				}
				g, err := mutex.NewGuard(s.RDB, mutex.GuardConfig{Name: s.Family})
				if err != nil {
					t.Fatal(err)
				}
				if err := g.Set(t.Context(), s.Key, l.Token(), "second", 0); err != nil {
					t.Fatal(err)
				}
				resumed := time.Now()
				child.Resume()
				if got := child.Expect("over"); got != "true" {
					t.Errorf("the cause is ErrLost: %s", got)
				}
				t.Logf("told %v after it went on", time.Since(resumed))
				if got := child.Expect("fenced"); got != "true" {
					t.Errorf("the guarded write is refused: %s", got)
				}
				if got := child.Expect("lost"); got != "true" {
					t.Errorf("the unlock says ErrLost: %s", got)
				}
				if got, _, err := g.Get(t.Context(), s.Key); err != nil || got != "second" {
					t.Errorf("the value is %q, %v", got, err)
				}
				if err := context.Cause(l.Context()); err != nil {
					t.Errorf("the successor: %v", err)
				}
				if err := l.Unlock(); err != nil {
					t.Errorf("the successor's unlock: %v", err)
				}
				s.free(time.Second)
			})
		})
	}
	all.Wait()
}
