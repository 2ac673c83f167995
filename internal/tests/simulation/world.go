package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The fleet, and what it shares.
const (
	clients  = 4
	permits  = 3
	semTTL   = 4 * time.Second
	mtxTTL   = 3 * time.Second
	total    = 4 // of a family with a total
	totLimit = 3 // of its keys
	// What one of the clients is configured with instead.
	otherTotal, otherLimit = 3, 2
	flightTTL              = 2 * time.Second
	valueTTL               = 700 * time.Millisecond
	late                   = 5 * time.Second        // how long a request may take to arrive
	aTick                  = 487 * time.Millisecond // how often the server is looked at
	// settled is how long after the last fault all is as if there had been none:
	// places are asked for again, connections made anew, dead clients forgotten.
	settled = 12 * time.Second
)

var (
	semKeys    = []string{"a", "b"}
	totKeys    = []string{"t", "u", "v"}
	totShares  = map[string]int{"u": 2, "v": 4}
	mtxKeys    = []string{"m", "n"}
	flightKeys = []string{"x", "y", "z"}
	keysOf     = map[string][]string{"sem": semKeys, "tot": totKeys, "mtx": mtxKeys}
	ttls       = map[string]time.Duration{"sem": semTTL, "tot": semTTL, "mtx": mtxTTL}
)

// outcome is what a run came to.
type outcome struct {
	violation *violation
	tally     map[string]int
	replies   []reply // to the calls of the schedule
	loads     int     // of these calls
}

// run plays a schedule in a bubble of its own.
func run(t *testing.T, s schedule) outcome {
	var w *world
	stuck := bubble(t, func(t *testing.T) {
		w = newWorld(t, s)
		w.play()
	})
	if stuck != nil && (w == nil || w.violation == nil) {
		return outcome{violation: &violation{rule: "L2", what: fmt.Sprintf("the bubble: %v", stuck)}}
	}
	return outcome{w.violation, w.tally, w.replies, w.loads}
}

// bubble plays in a bubble. It returns what that panics with in which nothing can happen any more.
func bubble(t *testing.T, play func(t *testing.T)) (stuck any) {
	defer func() { stuck = recover() }()
	synctest.Test(t, play)
	return nil
}

// world is a run under way.
type world struct {
	course
	tb     testing.TB
	script schedule
	mini   *miniredis.Miniredis
	client func(mod ...func(*redis.Options)) *redis.Client
	direct *redis.Client // over a network of its own, without faults
	net    *network
	faults []step        // that keep clients from being served
	ended  chan struct{} // no more looks at the server
	ops    sync.WaitGroup

	replies []reply // see outcome
	loads   int

	mu       sync.Mutex
	fleet    []*client // by number; nil where one is dead
	ever     []*client // all there were
	leases   ledger
	judge    *judge
	labels   map[string]*client         // all there were, by what listings show
	messages []miniredis.PubsubPmessage // the latest
	flights  cache
	slots    map[string]*slotState // by key and slot
}

func newWorld(t *testing.T, s schedule) *world {
	mini, connect := redistest.Bubble(t)
	w := &world{
		course: newCourse(), tb: t, script: s, mini: mini, client: connect, direct: connect(),
		net: newNetwork(s, mini.Dial), fleet: make([]*client, clients),
		ended:  make(chan struct{}),
		leases: newLedger(), labels: map[string]*client{}, slots: map[string]*slotState{},
	}
	w.judge = newJudge(w)
	for _, st := range s {
		if _, ok := st.fault(); ok {
			w.faults = append(w.faults, st)
		}
	}
	for c := range w.fleet {
		w.fleet[c] = w.newClient(c)
	}
	return w
}

// calm reports whether no fault happened to anybody from one time to another.
func (w *world) calm(from, to time.Time) bool {
	return w.calmBut("", from, to)
}

// good reports whether a call that a client begins now meets a network as if it
// had always been good; whether it still was at the end, calm tells.
func (w *world) good(c *client, now time.Time) bool {
	return w.calm(now.Add(-settled), now) && !c.line.unnoticed()
}

// play runs the schedule, then waits until all is as before it, and checks that it is.
func (w *world) play() {
	defer w.overhear()()
	looks := make(chan struct{})
	go func() { defer close(looks); w.watch() }()
	last := time.Duration(0)
	for _, st := range w.script {
		w.wait(st.at)
		if w.over() {
			break
		}
		until, _ := st.fault()
		last = max(last, until, st.at+st.span)
		w.act(st)
	}
	w.wait(last + time.Millisecond)
	w.raise()
	w.served()
	w.net.heal()
	w.mu.Lock()
	all := slices.Clone(w.ever)
	for _, c := range all {
		c.closing.Store(true)
		if w.over() {
			c.kill()
		}
	}
	w.mu.Unlock()
	for _, c := range all {
		w.shut(c)
		c.kill()
	}
	w.ops.Wait()
	close(w.ended)
	<-looks
	w.clean()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkLoads()
}

// calling is what clients do that takes time.
var calling = map[verb]func(*world, *client, step){
	take:       (*world).take,
	once:       (*world).doOnce,
	several:    (*world).takeSeveral,
	do:         (*world).ask,
	many:       (*world).ask,
	peek:       (*world).ask,
	invalidate: (*world).ask,
	poll:       (*world).poll,
	revoke:     (*world).revoke,
	adjust:     func(w *world, c *client, st step) { w.adjust(c, st) },
	inspect:    func(w *world, c *client, st step) { w.inspect(c, st) },
}

// act does one step; what takes time goes on by itself.
func (w *world) act(st step) {
	switch st.verb {
	case forget:
		redistest.WantErr(w.tb, w.direct.ScriptFlush(context.Background()).Err())
		return
	case flushAll:
		w.flush()
		return
	case limit:
		w.judge.limits.set(st.key, st.permits, st.span)
		redistest.WantErr(w.tb, w.direct.Set(context.Background(), redisKey("sem", st.key, "limit"), st.permits, st.span).Err())
		return
	case cut:
		for _, c := range w.living() {
			if st.client == c.number || st.client == everybody {
				c.line.cut()
			}
		}
		return
	case forge:
		w.forge()
		return
	case lose, slow, stall, refuse, misuse:
		return // the network knows
	}
	w.mu.Lock()
	c := w.fleet[st.client%clients]
	w.mu.Unlock()
	if c == nil {
		return // dead, and nobody has come yet
	}
	call := calling[st.verb]
	switch {
	case call != nil:
		w.ops.Go(func() { call(w, c, st) })
	case st.verb == die:
		w.die(c)
		w.ops.Go(func() {
			w.wait(st.at + st.span)
			w.mu.Lock()
			defer w.mu.Unlock()
			if !w.over() {
				w.fleet[c.number] = w.newClient(c.number)
			}
		})
	case st.verb == restart:
		w.mu.Lock()
		c.closing.Store(true)
		w.fleet[c.number] = w.newClient(c.number)
		w.mu.Unlock()
		w.ops.Go(func() { w.shut(c) })
	case st.verb != keeps: // which is in the clients' Config
		w.tb.Fatalf("no such step: %v", st)
	}
}

// flush is FLUSHALL: what was held is held no more, which its holders do not know yet.
func (w *world) flush() {
	now := time.Now()
	w.mu.Lock()
	w.leases.flushed(now)
	w.flights.drops = append(w.flights.drops, drop{called: now, done: now})
	w.mu.Unlock()
	for _, key := range semKeys {
		w.judge.limits.set(key, 0, 0)
	}
	redistest.WantErr(w.tb, w.direct.FlushAll(context.Background()).Err())
}

// redisKey is the name of a key in Redis, which is part of the contract.
func redisKey(kind, key, part string) string {
	if kind == "tot" { // all keys have one set
		return "leasehold:sem:{sim}:" + part
	}
	return "leasehold:" + kind + ":{sim:" + key + "}:" + part
}
