package harness

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Site is one key of a family as it stands on its server: what the tests of faults
// compare the library's word with. Its client goes around every fault.
type Site struct {
	TB          testing.TB
	RDB         redis.UniversalClient
	Kind        string
	Family, Key string
}

// NewSite makes a site of a family that no other test uses.
func NewSite(tb testing.TB, kind string, rdb redis.UniversalClient) *Site {
	StrictOnly(tb, kind)
	return &Site{TB: tb, RDB: rdb, Kind: kind, Family: redistest.Name(tb), Key: "k"}
}

// On is another key of the family, in the eyes of another test.
func (s *Site) On(tb testing.TB, key string) *Site {
	return &Site{TB: tb, RDB: s.RDB, Kind: s.Kind, Family: s.Family, Key: key}
}

// Part is a Redis key of the site, by the names that the contract gives.
func (s *Site) Part(part string) string { return Part(s.Kind, s.Family, s.Key, part) }

// Queued is the number of waiters.
func (s *Site) Queued() int {
	s.TB.Helper()
	n, err := s.RDB.ZCard(context.Background(), s.Part("queue")).Result()
	redistest.Check(s.TB, err == nil, "count the queue: %v", err)
	return int(n)
}

// WaitQueued waits until so many are in the queue.
func (s *Site) WaitQueued(n int) {
	s.TB.Helper()
	WaitCount(s.TB, "waiters", n, s.Queued)
}

var unexpired = redis.NewScript(`local t = redis.call('TIME')
return redis.call('ZCOUNT', KEYS[1], '(' .. (t[1] * 1000 + math.floor(t[2] / 1000)), '+inf')`)

// Living counts the members of a sorted set whose time is not over, by the server's clock.
func (s *Site) Living(part string) int {
	s.TB.Helper()
	n, err := unexpired.Run(context.Background(), s.RDB, []string{s.Part(part)}).Int()
	redistest.Check(s.TB, err == nil, "count %s: %v", part, err)
	return n
}

// InUse is the number of leases held by the server's clock.
func (s *Site) InUse() int {
	s.TB.Helper()
	return s.Living("holders")
}

// Slack is what a busy machine may add to a bound.
const Slack = 2 * time.Second

// Until waits until ok returns nil.
func Until(tb testing.TB, within time.Duration, ok func() error) {
	tb.Helper()
	var err error
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
		redistest.CheckNow(tb, !time.Now().After(deadline), "not within %v: %v", within, err)
	}
}

// WaitCount waits until got returns want.
func WaitCount(tb testing.TB, what string, want int, got func() int) {
	tb.Helper()
	Until(tb, redistest.Soon, func() error {
		if n := got(); n != want {
			return fmt.Errorf("%s: %d; want %d", what, n, want)
		}
		return nil
	})
}

// Loser has a proxy lose the k-th of all replies.
type Loser struct {
	Site   *Site
	Silent bool // with the connection left open, and not ended
	K      int  // 0 = none

	proxy *redistest.Proxy
	ask   string // the script of a sign of life
	act   redistest.Action

	mu                sync.Mutex
	seen              int
	lost              string
	granted           map[string]bool // attempts that an enter was granted to
	subscribed, asked chan struct{}   // closed when such a thing was answered
}

// Life is a use of one key from the first command to the last.
type Life struct {
	Name string
	Run  func(x *Loser)
}

// LoseEach has run live, once for each reply that it meets, and one of them is lost each time: once with the
// connection, and once with the connection left open and silent. It returns what the lost replies answered.
func LoseEach(t *testing.T, srv *redistest.Server, kind, ask string, lives []Life) map[string]bool {
	t.Helper()
	var mu sync.Mutex
	lost := map[string]bool{}
	places := make(chan struct{}, 16) // what two processors carry without being late
	live := func(t *testing.T, l Life, silent bool, k int) (replies int) {
		places <- struct{}{}
		defer func() { <-places }()
		x := &Loser{
			Site: NewSite(t, kind, srv.Client()), Silent: silent, K: k, proxy: redistest.NewProxy(t, srv.Addr()),
			ask: ask, act: redistest.Close, granted: map[string]bool{}, subscribed: make(chan struct{}), asked: make(chan struct{}),
		}
		if silent {
			x.act = redistest.Vanish
		}
		x.proxy.SetHook(x.hook)
		l.Run(x)
		mu.Lock()
		defer mu.Unlock()
		lost[x.Lost()] = true
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.seen // a late reply may still come
	}
	var all sync.WaitGroup
	for _, l := range lives {
		for how, silent := range map[string]bool{"closed": false, "silent": true} {
			all.Go(func() {
				t.Run(l.Name+", "+how, func(t *testing.T) {
					var all sync.WaitGroup
					for k := range live(t, l, silent, 0) + 4 { // some have more connections to open
						all.Go(func() { t.Run(fmt.Sprint(k+1), func(t *testing.T) { live(t, l, silent, k+1) }) })
					}
					all.Wait()
				})
			})
		}
	}
	all.Wait()
	return lost
}

func (x *Loser) hook(ev redistest.Event) redistest.Action {
	if ev.Stage != redistest.OnReply {
		return redistest.Pass
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	name := Script(ev.Cmd)
	switch {
	case name == "enter":
		if v := Integers(ev.Reply); len(v) > 0 && v[0] == 1 {
			x.granted[ev.Cmd[7]] = true
		}
	case name == "SUBSCRIBE":
		closeOnce(x.subscribed)
	case name == x.ask && !ev.Failed():
		closeOnce(x.asked)
	}
	if x.seen++; x.seen != x.K {
		return redistest.Pass
	}
	x.lost = name
	return x.act
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// Lost is what the lost reply answered, "" while none is lost.
func (x *Loser) Lost() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lost
}

// Granted is to how many attempts a reply to an enter gave a permit, the lost reply too.
func (x *Loser) Granted() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.granted)
}

// Client makes a client whose replies are lost.
func (x *Loser) Client() *redis.Client {
	return x.proxy.Client(func(o *redis.Options) {
		if x.Silent {
			o.ReadTimeout = 400 * time.Millisecond // else 3 s
		}
	})
}

// AwaitSubscription waits for the subscription of a handle that waits, and, if nothing is
// lost, for the sign of life that comes with it.
func (x *Loser) AwaitSubscription() {
	x.Site.TB.Helper()
	last := x.subscribed
	if x.K == 0 {
		last = x.asked
	}
	redistest.Get(x.Site.TB, "a subscription", last)
}

// WantLost fails the test unless a reply to each of these was lost.
func WantLost(t *testing.T, lost map[string]bool, names ...string) {
	t.Helper()
	for _, name := range names {
		redistest.Check(t, lost[name], "no reply to %s was lost", name)
	}
}
