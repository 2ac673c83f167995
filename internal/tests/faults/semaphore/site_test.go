package semaphore_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/semaphore"
)

// site is one key of a family as it stands on its server: what the tests of
// faults compare the library's word with. Its client goes around every fault.
type site struct {
	tb          testing.TB
	rdb         redis.UniversalClient
	family, key string
}

func newSite(tb testing.TB, rdb redis.UniversalClient) *site {
	return &site{tb: tb, rdb: rdb, family: redistest.Name(tb), key: "k"}
}

// part is a Redis key of the site, by the names that the contract gives.
func (s *site) part(part string) string {
	return "leasehold:sem:{" + s.family + ":" + s.key + "}:" + part
}

func (s *site) handle(rdb redis.UniversalClient, cfg semaphore.Config) *semaphore.Semaphore {
	s.tb.Helper()
	cfg.Name = s.family
	h, err := semaphore.New(rdb, cfg)
	if err != nil {
		s.tb.Fatal(err)
	}
	return h
}

// closing is handle, closed at the end of the test.
func (s *site) closing(rdb redis.UniversalClient, cfg semaphore.Config) *semaphore.Semaphore {
	s.tb.Helper()
	h := s.handle(rdb, cfg)
	s.tb.Cleanup(func() { closeHandle(s.tb, h) })
	return h
}

func closeHandle(tb testing.TB, h *semaphore.Semaphore) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := h.Close(ctx); err != nil {
		tb.Errorf("close: %v", err)
	}
}

var unexpired = redis.NewScript(`local t = redis.call('TIME')
return redis.call('ZCOUNT', KEYS[1], '(' .. (t[1] * 1000 + math.floor(t[2] / 1000)), '+inf')`)

// inUse is the number of permits held by the server's clock.
func (s *site) inUse() int {
	s.tb.Helper()
	n, err := unexpired.Run(context.Background(), s.rdb, []string{s.part("holders")}).Int()
	if err != nil {
		s.tb.Errorf("count the holders: %v", err)
	}
	return n
}

// queued is the number of waiters.
func (s *site) queued() int {
	s.tb.Helper()
	n, err := s.rdb.ZCard(context.Background(), s.part("queue")).Result()
	if err != nil {
		s.tb.Errorf("count the queue: %v", err)
	}
	return int(n)
}

// empty waits until nothing is held and nobody waits, then takes all permits at
// once, and gives them back.
func (s *site) empty(limit int, within time.Duration) {
	s.tb.Helper()
	until(s.tb, within, func() error {
		if n, q := s.inUse(), s.queued(); n != 0 || q != 0 {
			return fmt.Errorf("%d permits in use and %d waiters are left", n, q)
		}
		return nil
	})
	h := s.handle(s.rdb, semaphore.Config{Limit: limit})
	defer closeHandle(s.tb, h)
	l, err := h.TryAcquireN(context.Background(), s.key, limit)
	if err != nil {
		s.tb.Errorf("take all permits after the fault: %v", err)
		return
	}
	if err := l.Release(); err != nil {
		s.tb.Errorf("give all permits back: %v", err)
	}
}

// until waits until ok returns nil.
func until(tb testing.TB, within time.Duration, ok func() error) {
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

func count(tb testing.TB, what string, want int, got func() int) {
	tb.Helper()
	until(tb, 10*time.Second, func() error {
		if n := got(); n != want {
			return fmt.Errorf("%s: %d; want %d", what, n, want)
		}
		return nil
	})
}

// eachServer runs fn on every installed server: a proxy stands before one, so a
// Cluster is none.
func eachServer(t *testing.T, fn func(t *testing.T, srv *redistest.Server)) {
	for _, v := range redistest.NeedServers(t) {
		t.Run(v.Name, func(t *testing.T) { fn(t, redistest.Shared(t, v)) })
	}
}

// eachServerAtOnce is eachServer for tests that mostly wait: all at the same
// time, however few processors there are.
func eachServerAtOnce(t *testing.T, fn func(t *testing.T, srv *redistest.Server)) {
	var all sync.WaitGroup
	for _, v := range redistest.NeedServers(t) {
		all.Go(func() { t.Run(v.Name, func(t *testing.T) { fn(t, redistest.Shared(t, v)) }) })
	}
	all.Wait()
}

// seeded is a source of random choices that a failing run names, and that
// LEASEHOLD_SEED repeats.
func seeded(tb testing.TB) *rand.Rand {
	tb.Helper()
	seed := rand.Uint64()
	if text, ok := os.LookupEnv("LEASEHOLD_SEED"); ok {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			tb.Fatalf("LEASEHOLD_SEED: %v", err)
		}
	}
	tb.Logf("LEASEHOLD_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

var scripts = func() map[string]string {
	m := map[string]string{}
	for name, source := range map[string]string{
		"enter": luascripts.PermitsEnter(), "leave": luascripts.PermitsLeave(), "ask": luascripts.PermitsAsk(), "renew": luascripts.PermitsRenew(),
	} {
		sum := sha1.Sum([]byte(source))
		m[hex.EncodeToString(sum[:])], m[source] = name, name
	}
	return m
}()

// script is what a command on the wire does: a script of ours by its name, or
// the command's own name.
func script(cmd []string) string {
	if len(cmd) > 1 && strings.HasPrefix(cmd[0], "EVAL") {
		return scripts[cmd[1]]
	}
	return cmd[0]
}

// does matches a script on the wire.
func does(name string) func(cmd []string) bool {
	return func(cmd []string) bool { return script(cmd) == name }
}

// answers tells of each good reply to a script that passes through a proxy from now
// on.
func answers(p *redistest.Proxy, name string) <-chan struct{} {
	c := make(chan struct{}, 10_000)
	p.SetHook(func(ev redistest.Event) redistest.Action {
		if ev.Stage == redistest.OnReply && !ev.Failed() && script(ev.Cmd) == name {
			c <- struct{}{}
		}
		return redistest.Pass
	})
	return c
}

// integers are the leading integers of a script's reply on the wire; nil where
// it is an error.
func integers(reply []byte) []int64 {
	var all []int64
	for i, line := range strings.Split(strings.TrimSpace(string(reply)), "\r\n") {
		if i == 0 && line[0] == '*' {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimPrefix(line, ":"), 10, 64)
		if err != nil {
			return nil
		}
		all = append(all, n)
	}
	return all
}

func isErr(tb testing.TB, what string, err error, wants ...error) {
	tb.Helper()
	for _, want := range wants {
		if !errors.Is(err, want) {
			tb.Errorf("%s: error %v; want one that matches %v", what, err, want)
		}
	}
}

// result is what a call in another goroutine returned, and when.
type result struct {
	lease *semaphore.Lease
	err   error
	at    time.Time
}

// acquiring runs an acquisition in another goroutine.
func acquiring(acquire func() (*semaphore.Lease, error)) <-chan result {
	done := make(chan result, 1)
	go func() {
		l, err := acquire()
		done <- result{l, err, time.Now()}
	}()
	return done
}

// within takes the result of an acquisition, and fails the test where none
// comes in time.
func within(tb testing.TB, d time.Duration, done <-chan result) result {
	tb.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(d):
		tb.Fatalf("the acquisition doesn't return within %v", d)
		return result{}
	}
}

// dial is for children, which have no test to close a client with.
func dial(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }
