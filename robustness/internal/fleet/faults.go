package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

type Fault struct {
	Name string

	quiet  bool     // no call may say "unavailable"
	pair   bool     // the server has a replica
	args   []string // of the server
	strike func(f *Fleet)
	mix    []Fault // instead of strike: one of these each time
}

// durable has a server lose nothing that it has acknowledged.
var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

// Mixed is any of the faults in turn under which the limits hold.
func Mixed() Fault { return Fault{Name: "mixed", args: durable, mix: harmless()} }

func harmless() []Fault {
	return []Fault{
		{Name: "kill", quiet: true, strike: (*Fleet).kill},
		{Name: "stop", strike: (*Fleet).stop},
		{Name: "cut", strike: func(f *Fleet) { f.cut(true, true) }},
		{Name: "cut-one-way", strike: func(f *Fleet) {
			toServer := f.rng.IntN(2) == 0
			f.cut(toServer, !toServer)
		}},
		{Name: "lost-replies", strike: (*Fleet).loseReplies},
		{Name: "slow-replies", strike: (*Fleet).delay},
		{Name: "lost-messages", quiet: true, strike: (*Fleet).loseMessages},
		{Name: "script-flush", quiet: true, strike: (*Fleet).flushScripts},
		{Name: "client-pause", strike: (*Fleet).pauseClients},
		{Name: "restart-aof", args: durable, strike: (*Fleet).restart},
	}
}

// Faults are all that there are. Under the last three the limits do not hold beyond the moments in which the
// server forgets.
func Faults() []Fault {
	none := Fault{Name: "none", quiet: true, strike: func(f *Fleet) { f.sleep(50*time.Millisecond, 100*time.Millisecond) }}
	return append(append([]Fault{none}, harmless()...),
		Mixed(),
		Fault{Name: "restart-empty", strike: func(f *Fleet) {
			from := history.Now()
			f.restart()
			f.note(history.Event{Kind: history.Forget, At: from, Until: history.Now()})
		}},
		Fault{Name: "delete-key", strike: (*Fleet).deleteKey},
		Fault{Name: "failover", pair: true, strike: (*Fleet).failOver},
	)
}

// ttl is so many times that of the leases, at random.
func (f *Fleet) ttl(lo, hi float64) time.Duration {
	t := float64(f.terms.TTL)
	return f.between(time.Duration(t*lo), time.Duration(t*hi))
}

func (f *Fleet) kill() {
	m := f.workers[f.cfg.Spared+f.rng.IntN(len(f.workers)-f.cfg.Spared)]
	f.note(history.Event{Kind: history.Kill, Worker: m.name, At: history.Now()})
	m.child.Kill()
	<-m.read
	name, life, _ := strings.Cut(m.name, "/")
	n := 1
	_, _ = fmt.Sscan(life, &n)
	m.name = fmt.Sprintf("%s/%d", name, n+1)
	f.hire(m)
	m.child.Send("go")
	f.sleep(200*time.Millisecond, 700*time.Millisecond)
}

func (f *Fleet) stop() {
	m := f.workers[f.rng.IntN(len(f.workers))]
	from := history.Now()
	m.child.Pause()
	time.Sleep(f.ttl(1.05, 1.6))
	m.child.Resume()
	f.note(history.Event{Kind: history.Stop, Worker: m.name, At: from, Until: history.Now()})
	f.sleep(50*time.Millisecond, 200*time.Millisecond)
}

func (f *Fleet) cut(toServer, toClient bool) {
	some := f.some()
	for _, m := range some {
		m.proxy.Cut(toServer, toClient)
	}
	time.Sleep(f.ttl(0.2, 1.9))
	late := f.rng.IntN(2) == 0
	for _, m := range some {
		if late {
			m.proxy.HealLate()
		} else {
			m.proxy.Heal()
		}
	}
}

// loseReplies has connections end at random replies and requests, at the k-th
// reply from now, and in the middle of a reply.
func (f *Fleet) loseReplies() {
	for _, m := range f.workers {
		dice := rand.New(rand.NewPCG(f.rng.Uint64(), 2))
		rate := f.rng.Float64() * 0.08
		var mu sync.Mutex
		m.proxy.SetHook(func(ev redistest.Event) redistest.Action {
			mu.Lock()
			x := dice.Float64()
			mu.Unlock()
			switch {
			case ev.Stage == redistest.OnReply && x < rate:
				return redistest.Close
			case ev.Stage == redistest.OnReply && x < rate*1.2:
				return redistest.Vanish
			case ev.Stage == redistest.OnRequest && x < rate/2:
				return redistest.Close
			}
			return redistest.Pass
		})
	}
	m := f.workers[f.rng.IntN(len(f.workers))]
	m.proxy.EatReply(redistest.Named("EVALSHA"), 1+f.rng.IntN(20))
	m.proxy.CutAfter(redistest.Direction(f.rng.IntN(2)), f.rng.Int64N(4000))
	f.sleep(150*time.Millisecond, 400*time.Millisecond)
	for _, m := range f.workers {
		m.proxy.SetHook(nil)
	}
}

func (f *Fleet) delay() {
	some, d := f.some(), f.ttl(0.05, 1.2)
	for _, m := range some {
		if f.rng.IntN(4) == 0 {
			m.proxy.Delay(d, 0)
		} else {
			m.proxy.Delay(0, d)
		}
	}
	f.sleep(100*time.Millisecond, 500*time.Millisecond)
	for _, m := range some {
		m.proxy.Delay(0, 0)
	}
}

func (f *Fleet) loseMessages() {
	for _, m := range f.workers {
		m.proxy.DropMessages(f.rng.IntN(3) > 0)
	}
	for range 5 + f.rng.IntN(25) {
		f.order("CLIENT", "KILL", "TYPE", "pubsub")
		time.Sleep(15 * time.Millisecond)
	}
	for _, m := range f.workers {
		m.proxy.DropMessages(false)
	}
}

func (f *Fleet) flushScripts() {
	for range 60 {
		f.order("SCRIPT", "FLUSH")
		f.sleep(time.Millisecond, 8*time.Millisecond)
	}
}

func (f *Fleet) pauseClients() {
	d := f.ttl(0.1, 1.3)
	f.order("CLIENT", "PAUSE", d.Milliseconds(), "ALL")
	time.Sleep(d)
}

func (f *Fleet) restart() {
	f.server.Kill()
	f.sleep(0, 200*time.Millisecond)
	f.server.Restart()
	f.sleep(150*time.Millisecond, 500*time.Millisecond)
}

// deleteKey deletes the leases of a key, as an operator might.
func (f *Fleet) deleteKey() {
	all := Keys()
	key := all[f.rng.IntN(len(all))]
	if key[0] == 't' {
		f.deletePart()
		return
	}
	kind := map[byte]keys.Kind{'s': keys.Semaphore, 'm': keys.Mutex, 'c': keys.Flight}[key[0]]
	r := redistest.Must(keys.Family{Kind: kind, Name: f.family}.Resource(key))(f.tb)
	from := history.Now()
	f.order("DEL", r.Part("holders"))
	f.note(history.Event{Kind: history.Forget, Key: key, At: from, Until: history.Now()})
}

// deletePart deletes one of the keys of the family with a total. Where it is not the
// holders, no lease is lost by it.
func (f *Fleet) deletePart() {
	parts := []string{"holders", "places", "queue", "line", "alive", "ready", "turns"}
	part := parts[f.rng.IntN(len(parts))]
	from := history.Now()
	f.order("DEL", keys.Family{Kind: keys.Semaphore, Name: f.family}.Together().Part(part))
	if part != "holders" {
		return
	}
	for i := range shared {
		f.note(history.Event{Kind: history.Forget, Key: fmt.Sprint("t", i), At: from, Until: history.Now()})
	}
}

// failOver promotes the replica and lets the primary go on for a while, as if the
// replica lagged by so much; then the primary is lost, and all go to the new one.
func (f *Fleet) failOver() {
	from := history.Now()
	old := f.server
	f.server, f.replica = f.replica, old
	f.admin = f.server.Client()
	f.order("REPLICAOF", "NO", "ONE")
	f.sleep(20*time.Millisecond, 300*time.Millisecond)
	old.Kill()
	for _, m := range f.workers {
		m.proxy.SetUpstream(f.server.Addr())
	}
	f.note(history.Event{Kind: history.Forget, Revives: true, At: from, Until: history.Now()})
	old.Restart()
	host, port, _ := strings.Cut(f.server.Addr(), ":")
	redistest.NoError(f.tb, old.Client().Do(f.tb.Context(), "REPLICAOF", host, port).Err())
	f.sleep(300*time.Millisecond, 600*time.Millisecond)
}

func (f *Fleet) order(words ...any) {
	ctx, cancel := context.WithTimeout(f.tb.Context(), 20*time.Second)
	defer cancel()
	redistest.Expect(f.tb, f.admin.Do(ctx, words...).Err(), nil, "%v: %v", words)
}
