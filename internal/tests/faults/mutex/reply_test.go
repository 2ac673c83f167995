package mutex

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// loser has a proxy lose the k-th reply of all, whatever it answers, and notes
// which tokens the server told which attempt, the lost reply's too.
type loser struct {
	*site
	p   *redistest.Proxy
	k   int // 0 = none
	act redistest.Action

	mu     sync.Mutex
	seen   int
	lost   string                     // what the lost reply answered
	tokens map[string]map[uint64]bool // by the attempt's ID
}

func (x *loser) hook(ev redistest.Event) redistest.Action {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch ev.Stage {
	case redistest.OnMessage:
		words := strings.Fields(ev.Payload)
		_, handle, _ := strings.Cut(ev.Channel, ":inbox:")
		x.told(handle+"."+words[0], words[3])
		return redistest.Pass
	case redistest.OnRequest:
		return redistest.Pass
	}
	v := harness.Integers(ev.Reply)
	switch harness.Script(ev.Cmd) {
	case "enter":
		if len(v) > 3 && v[0] == 1 {
			x.told(ev.Cmd[7], fmt.Sprint(v[3]))
		}
	case "ask":
		for i, member := range ev.Cmd[8:] {
			if at := 5 + 3*i; len(v) > at+2 && v[at] == 1 {
				x.told(member, fmt.Sprint(v[at+2]))
			}
		}
	}
	if x.seen++; x.seen != x.k {
		return redistest.Pass
	}
	x.lost = harness.Script(ev.Cmd)
	return x.act
}

// told notes a token. Called with the lock.
func (x *loser) told(member, token string) {
	words := strings.Split(member, ".")
	id := words[0][:8] + "-" + words[1]
	if x.tokens[id] == nil {
		x.tokens[id] = map[uint64]bool{}
	}
	n, _ := strconv.ParseUint(token, 10, 64)
	x.tokens[id][n] = true
}

// sameToken says that an attempt was told no token but the one that it has.
func (x *loser) sameToken(l *mutex.Lock) {
	x.TB.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for token := range x.tokens[l.ID()] {
		if token != l.Token() {
			x.TB.Errorf("the lock has token %d; the server had told its attempt %d", l.Token(), token)
		}
	}
}

func (x *loser) client() *redis.Client {
	return x.p.Client(func(o *redis.Options) {
		if x.act == redistest.Vanish {
			o.ReadTimeout = 400 * time.Millisecond // else 3 s
		}
	})
}

// lifeTTL leaves time for a renewal to be sent again, several times, on a busy machine.
const lifeTTL = 3 * time.Second

var lives = map[string]func(x *loser){
	"alone": func(x *loser) {
		h := x.handle(x.client(), mutex.Config{TTL: lifeTTL})
		l, err := h.Lock(context.Background(), x.Key)
		if err != nil {
			x.TB.Fatalf("lock: %v", err)
		}
		x.sameToken(l)
		first := l.Deadline()
		harness.Until(x.TB, lifeTTL, func() error {
			if err := context.Cause(l.Context()); err != nil {
				x.TB.Fatalf("lost: %v", err)
			}
			if !l.Deadline().After(first) {
				return fmt.Errorf("no renewal")
			}
			return nil
		})
		x.unlock(l)
	},
	"handed over in the process": func(x *loser) {
		h := x.handle(x.client(), mutex.Config{TTL: lifeTTL})
		x.handOver(h, h)
	},
	"handed over to another process": func(x *loser) {
		cfg := mutex.Config{TTL: lifeTTL}
		x.handOver(x.handle(x.client(), cfg), x.handle(x.client(), cfg))
	},
}

func (x *loser) handOver(h1, h2 *mutex.Mutex) {
	first, err := h1.Lock(context.Background(), x.Key)
	if err != nil {
		x.TB.Fatalf("lock: %v", err)
	}
	x.sameToken(first)
	waiter := locking(h2, x.Key)
	x.WaitQueued(1)
	if err := first.Unlock(); err != nil {
		x.TB.Errorf("unlock: %v", err)
	}
	next := within(x.TB, 10*time.Second, waiter)
	x.sameToken(next)
	if next.Token() <= first.Token() {
		x.TB.Errorf("token %d after %d", next.Token(), first.Token())
	}
	x.unlock(next)
}

func (x *loser) unlock(l *mutex.Lock) {
	if last, err := x.RDB.Get(context.Background(), x.Part("fence")).Uint64(); err != nil || last != l.Token() {
		x.TB.Errorf("the last token that was issued is %d, %v; the lock has %d", last, err, l.Token())
	}
	if err := l.Unlock(); err != nil {
		x.TB.Errorf("unlock: %v", err)
	}
	harness.IsErr(x.TB, "unlock again", l.Unlock(), leasehold.ErrReleased)
	x.free(0) // at once: Unlock said so
}

// A reply is lost at each command of a life in turn, once with the connection
// and once with the connection left open and silent: an attempt has one token,
// however often it was sent and answered.
func TestLostReplyKeepsTheToken(t *testing.T) {
	var lost sync.Map // which replies were, on any server: which a life meets is a matter of moments
	for _, v := range redistest.NeedServers(t) {
		t.Run(v.Name, func(t *testing.T) {
			srv := redistest.Shared(t, v)
			var all sync.WaitGroup
			places := make(chan struct{}, 12) // what two processors carry without being late
			for name, run := range lives {
				for how, act := range map[string]redistest.Action{"closed": redistest.Close, "silent": redistest.Vanish} {
					all.Go(func() {
						t.Run(name+", "+how, func(t *testing.T) { loseEach(t, srv, run, act, places, &lost) })
					})
				}
			}
			all.Wait()
		})
	}
	for _, name := range []string{"time", "enter", "renew", "ask", "leave", "SUBSCRIBE"} {
		if _, ok := lost.Load(name); !ok {
			t.Errorf("no reply to %s was lost", name)
		}
	}
}

func loseEach(t *testing.T, srv *redistest.Server, run func(*loser), act redistest.Action, places chan struct{}, lost *sync.Map) {
	live := func(t *testing.T, k int) (replies int, to string) {
		places <- struct{}{}
		defer func() { <-places }()
		x := &loser{
			site: newSite(t, srv.Client()), p: redistest.NewProxy(t, srv.Addr()),
			k: k, act: act, tokens: map[string]map[uint64]bool{},
		}
		x.p.SetHook(x.hook)
		run(x)
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.seen, x.lost
	}
	var all sync.WaitGroup
	replies, _ := live(t, 0)
	for k := 1; k <= replies+3; k++ { // some have more connections to open
		all.Go(func() {
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				_, to := live(t, k)
				t.Logf("lost the reply to %q", to)
				lost.Store(to, true)
			})
		})
	}
	all.Wait()
}
