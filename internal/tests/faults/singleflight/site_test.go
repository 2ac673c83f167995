package singleflight_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// faultSite is one key of a family as it stands on its server: what the tests of
// faults compare the library's word with. Its client goes around every fault.
type faultSite struct {
	tb          testing.TB
	rdb         redis.UniversalClient
	family, key string
}

func newFaultSite(tb testing.TB, rdb redis.UniversalClient) *faultSite {
	return &faultSite{tb: tb, rdb: rdb, family: redistest.Name(tb), key: "k"}
}

// on is the same key in the eyes of another test.
func (s *faultSite) on(tb testing.TB, key string) *faultSite {
	return &faultSite{tb: tb, rdb: s.rdb, family: s.family, key: key}
}

// part is a Redis key of the site, by the names that the contract gives.
func (s *faultSite) part(part string) string {
	return "leasehold:flt:{" + s.family + ":" + s.key + "}:" + part
}

type faultConfig = func(c *singleflight.Config[string])

// group makes a group of the family, closed at the end of the test.
func (s *faultSite) group(rdb redis.UniversalClient, mod ...faultConfig) *singleflight.Group[string] {
	s.tb.Helper()
	g := faultGroup(s.tb, rdb, s.family, mod...)
	s.tb.Cleanup(func() { faultClose(s.tb, g) })
	return g
}

func faultGroup(tb testing.TB, rdb redis.UniversalClient, family string, mod ...faultConfig) *singleflight.Group[string] {
	tb.Helper()
	cfg := singleflight.Config[string]{Name: family, TTL: time.Minute, Jitter: -1, LeaseTTL: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	for _, m := range mod {
		m(&cfg)
	}
	g, err := singleflight.New(rdb, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func faultClose(tb testing.TB, g *singleflight.Group[string]) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := g.Close(ctx); err != nil {
		tb.Errorf("close: %v", err)
	}
}

// queued is the number of flights that wait.
func (s *faultSite) queued() int {
	s.tb.Helper()
	n, err := s.rdb.ZCard(context.Background(), s.part("queue")).Result()
	if err != nil {
		s.tb.Errorf("count the queue: %v", err)
	}
	return int(n)
}

var faultLiving = redis.NewScript(`local t = redis.call('TIME')
return redis.call('ZCOUNT', KEYS[1], '(' .. (t[1] * 1000 + math.floor(t[2] / 1000)), '+inf')`)

// living counts the members of a sorted set whose time is not over.
func (s *faultSite) living(part string) int {
	s.tb.Helper()
	n, err := faultLiving.Run(context.Background(), s.rdb, []string{s.part(part)}).Int()
	if err != nil {
		s.tb.Errorf("count %s: %v", part, err)
	}
	return n
}

var faultParts = []string{"holders", "queue", "alive", "fence", "value", "failure", "landed", "aside"}

// clean waits until nothing runs and nobody waits, and says that no key is left
// without an end. Tombstones may stay for as long as they say.
func (s *faultSite) clean(within time.Duration) {
	s.tb.Helper()
	faultUntil(s.tb, within, func() error {
		if h, q, a := s.living("holders"), s.queued(), s.living("aside"); h != 0 || q != 0 || a != 0 {
			return fmt.Errorf("left on key %s: %d holders, %d in the queue, %d aside", s.key, h, q, a)
		}
		return nil
	})
	for _, part := range faultParts {
		ttl, err := s.rdb.PTTL(context.Background(), s.part(part)).Result()
		if err != nil || ttl == -1 {
			s.tb.Errorf("%s has no end: %v, %v", s.part(part), ttl, err)
		}
	}
}

// faultUntil waits until ok returns nil.
func faultUntil(tb testing.TB, within time.Duration, ok func() error) {
	tb.Helper()
	var err error
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %v", within, err)
		}
	}
}

// waits waits until so many flights are in the queue.
func (s *faultSite) waits(n int) {
	s.tb.Helper()
	faultUntil(s.tb, 10*time.Second, func() error {
		if q := s.queued(); q != n {
			return fmt.Errorf("%d flights wait; want %d", q, n)
		}
		return nil
	})
}

var faultNames sync.Map // of scripts, by what is on the wire

// faultName is what a command on the wire does: a script of ours by its name, or
// the command's own name.
func faultName(cmd []string) string {
	switch {
	case len(cmd) == 0:
		return ""
	case len(cmd) == 1 || !strings.HasPrefix(cmd[0], "EVAL"):
		return cmd[0]
	}
	name, ok := faultNames.Load(cmd[1])
	if !ok {
		name, _ = faultNames.LoadOrStore(cmd[1], call.ScriptName(cmd[1]))
	}
	return name.(string)
}

// faultDoes matches a script or command on the wire.
func faultDoes(name string) func(cmd []string) bool {
	return func(cmd []string) bool { return faultName(cmd) == name }
}

// faultWarm teaches a group the server's clock, and the server the scripts.
func faultWarm(tb testing.TB, g *singleflight.Group[string]) {
	tb.Helper()
	ctx := context.Background()
	if _, err := g.Do(ctx, "warm", faultGives("warm")); err != nil {
		tb.Fatal(err)
	}
	if err := g.Invalidate(ctx, "warm"); err != nil {
		tb.Fatal(err)
	}
}

type faultLoader = func(ctx context.Context) (string, error)

// faultGives is a loader that returns v at once.
func faultGives(v string) faultLoader {
	return func(context.Context) (string, error) { return v, nil }
}

// faultFetched is what a call in another goroutine came to, and when.
type faultFetched struct {
	singleflight.Result[string]
	err error
	at  time.Time
}

// faultFetch calls Fetch in another goroutine.
func faultFetch(ctx context.Context, g *singleflight.Group[string], key string, load faultLoader) <-chan faultFetched {
	done := make(chan faultFetched, 1)
	go func() {
		r, err := g.Fetch(ctx, key, load)
		done <- faultFetched{r, err, time.Now()}
	}()
	return done
}

// faultGot takes what a channel gives, and fails the test where nothing comes in
// time.
func faultGot[T any](tb testing.TB, d time.Duration, what string, from <-chan T) T {
	tb.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(d):
		tb.Fatalf("%s: nothing within %v", what, d)
		panic("unreachable")
	}
}
