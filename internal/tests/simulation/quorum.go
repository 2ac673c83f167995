package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// A run of locks that several servers decide. A minority of the servers is in trouble at any time:
// what lies between it and the processes loses, delays, stalls or refuses, it forgets, or its clock
// jumps. Processes die.
const (
	quorumTTL  = 3 * time.Second
	quorumSpan = 25 * time.Second
	processes  = 3
	// cured is how long a server counts as sick after its trouble is over: votes that are missing
	// are asked for by renewals, and a connection that has become silent is found by a time-out.
	cured = quorumTTL
	// patient is how long a waiter may wait: for dead holders, abstentions and the others' turns.
	patient = 30 * time.Second
)

// A voterServer is one of the servers.
type voterServer struct {
	mini    *miniredis.Miniredis
	connect func(mod ...func(*redis.Options)) *redis.Client
	direct  *redis.Client // without faults
	net     *network

	mu    sync.Mutex
	shift time.Duration // of its clock
	lines []*line       // to it
}

// cut ends all connections.
func (s *voterServer) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		l.cut()
	}
}

// tick has the server's clock differ: TIME tells the shifted time, and times that scripts compute
// from it are shifted back.
func (s *voterServer) tick(peer *server.Peer, cmd string, args ...string) bool {
	s.mu.Lock()
	shift := s.shift
	s.mu.Unlock()
	switch {
	case cmd == "TIME":
		us := time.Now().Add(shift).UnixMicro()
		peer.WriteLen(2)
		peer.WriteBulk(strconv.FormatInt(us/1e6, 10))
		peer.WriteBulk(strconv.FormatInt(us%1e6, 10))
		return true
	case cmd == "PEXPIREAT" && len(args) > 1:
		if ms, err := strconv.ParseInt(args[1], 10, 64); err == nil {
			args[1] = strconv.FormatInt(ms-shift.Milliseconds(), 10)
		}
	}
	return false
}

// A trouble is what happens to a server.
type trouble struct {
	step
	server int
	amnesia, jumps,
	restarts bool
}

func (t trouble) String() string {
	return fmt.Sprintf("server %d: %v amnesia=%v restarts=%v jumps=%v", t.server, t.step, t.amnesia, t.restarts, t.jumps)
}

// troubles makes those of a run: at any time a minority of n servers is sick. If the run is harsh,
// a server counts as cured at once, unless it has forgotten. A clock jumps only in a run that is not:
// where it ends a vote early, no other vote may be missing.
func troubles(dice *rand.Rand, n int, harsh bool) (all []trouble) {
	// When the next one may begin, for each of the minority: at first, the family begins, which takes all servers.
	free := slices.Repeat([]time.Duration{100 * time.Millisecond}, n/2)
	busy := make([]time.Duration, n) // until when a server is sick
	for {
		slot := 0
		for i := range free {
			if free[i] < free[slot] {
				slot = i
			}
		}
		at := free[slot] + time.Duration(dice.IntN(1500))*time.Millisecond
		if at > quorumSpan {
			return all
		}
		t := trouble{server: dice.IntN(n), step: step{at: at, client: everybody, span: time.Duration(50+dice.IntN(3000)) * time.Millisecond}}
		if busy[t.server] > at {
			free[slot] = at
			continue
		}
		if dice.IntN(3) == 0 {
			t.client = dice.IntN(processes)
		}
		t.dir = []string{requests, replies, messages}[dice.IntN(3)]
		switch dice.IntN(8) {
		case 0, 1:
			t.verb, t.silent = lose, t.dir != messages && dice.IntN(2) == 0
		case 2:
			t.verb, t.by = slow, time.Duration(dice.IntN(400))*time.Millisecond
		case 3:
			t.verb = stall
		case 4:
			t.verb, t.restarts = refuse, true
		case 5:
			t.verb, t.restarts, t.amnesia = refuse, true, true
			t.client = everybody
		case 6:
			t.amnesia, t.span = true, 0
		case 7:
			if harsh {
				continue
			}
			t.jumps, t.span = true, 0
			t.by = time.Duration(dice.IntN(6001)-3000) * time.Millisecond
		}
		all = append(all, t)
		free[slot] = at + t.span
		if !harsh || t.amnesia {
			free[slot] += cured
		}
		if t.amnesia || t.silent && !harsh {
			free[slot] += quorumTTL
		}
		busy[t.server] = free[slot]
	}
}

// A quorumWorld is such a run under way.
type quorumWorld struct {
	course
	tb      testing.TB
	servers []*voterServer
	script  []trouble
	harsh   bool   // a lock may be lost, and a majority out of reach for a moment
	cutOffs []step // of a process from all servers, which may lose its locks then

	mu      sync.Mutex
	held    map[string]*mutex.Lock // by key: the latest that was granted
	last    map[string]uint64
	longest time.Duration
}

// playQuorum plays the run of a seed. It returns what broke a promise.
func playQuorum(t *testing.T, seed uint64, n int) (w *quorumWorld) {
	dice := rand.New(rand.NewPCG(seed, uint64(n)))
	w = &quorumWorld{course: newCourse(), tb: t, held: map[string]*mutex.Lock{}, last: map[string]uint64{}}
	w.harsh = seed%4 >= 2
	w.script = troubles(dice, n, w.harsh)
	for range 3 {
		x := step{verb: stall, client: dice.IntN(processes), at: time.Duration(dice.IntN(20000)) * time.Millisecond, span: time.Duration(1+dice.IntN(6)) * time.Second}
		if dice.IntN(2) == 0 {
			x.verb, x.dir, x.silent = lose, replies, true
		}
		w.cutOffs = append(w.cutOffs, x)
	}
	for g := (&generator{Rand: rand.New(rand.NewPCG(seed, 6))}); g.chance(2); {
		w.cutOffs = append(w.cutOffs, g.misuse(g.IntN(processes), g.upTo(20*time.Second)))
	}
	for i := range n {
		mini, connect := redistest.Bubble(t)
		s := &voterServer{mini: mini, connect: connect, direct: connect(), shift: time.Duration(dice.IntN(6001)-3000) * time.Millisecond}
		mini.Server().SetPreHook(s.tick)
		faults := slices.Clone(schedule(w.cutOffs))
		for _, x := range w.script {
			if x.server == i && x.verb != "" {
				faults = append(faults, x.step)
			}
		}
		s.net = newNetwork(faults, mini.Dial)
		w.servers = append(w.servers, s)
	}
	w.run(dice)
	return w
}

func (w *quorumWorld) now() time.Duration { return w.since(time.Now()) }

// disturbed reports whether a process may meet no majority, and lose a lock, in the time before now.
func (w *quorumWorld) disturbed(process int) bool {
	return w.harsh || slices.ContainsFunc(w.cutOffs, func(x step) bool {
		return x.client == process && x.at <= w.now() && w.now() < x.at+x.span+settled
	})
}

// run lets processes compete until the troubles are over, and then closes them.
func (w *quorumWorld) run(dice *rand.Rand) {
	for _, s := range w.servers { // the family begins
		redistest.WantErr(w.tb, s.direct.Ping(context.Background()).Err())
	}
	var all sync.WaitGroup
	for c := range processes {
		seed := dice.Uint64()
		all.Go(func() { w.process(c, rand.New(rand.NewPCG(seed, 0))) })
		time.Sleep(time.Millisecond)
	}
	for _, x := range w.script {
		time.Sleep(x.at - w.now())
		s := w.servers[x.server]
		if x.jumps {
			s.mu.Lock()
			s.shift = x.by
			s.mu.Unlock()
		}
		if x.restarts {
			s.cut()
			_ = s.direct.ScriptFlush(context.Background())
		}
		if x.amnesia {
			s.mini.FlushAll()
		}
	}
	all.Wait()
	time.Sleep(quorumSpan + late - w.now()) // what is under way arrives
}

// describe lists the troubles of a run.
func (w *quorumWorld) describe() string {
	var b strings.Builder
	for _, x := range w.script {
		fmt.Fprintln(&b, x)
	}
	for _, x := range w.cutOffs {
		fmt.Fprintln(&b, "all servers:", x)
	}
	return b.String()
}

// process is one process after the other: each dies, or is closed, after a while.
func (w *quorumWorld) process(number int, dice *rand.Rand) {
	for w.now() < quorumSpan && !w.over() {
		p := w.newProcess(number)
		ends := w.now() + time.Duration(5+dice.IntN(30))*time.Second
		dies := ends < quorumSpan && dice.IntN(2) == 0
		var workers sync.WaitGroup
		for range 2 {
			seed := dice.Uint64()
			workers.Go(func() { p.work(rand.New(rand.NewPCG(seed, 0)), min(ends, quorumSpan)) })
		}
		if dies {
			time.Sleep(ends - w.now())
			p.die()
		}
		workers.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if err := p.m.Close(ctx); err != nil && !dies {
			w.fail("L2", "close of process %d: %v", number, err)
		}
		cancel()
		p.die()
	}
}

// A quorumProcess is a process with a handle.
type quorumProcess struct {
	w      *quorumWorld
	number int
	m      *mutex.Mutex
	rdbs   []*redis.Client
	lines  []*line
	ctx    context.Context
	kill   context.CancelFunc
}

func (w *quorumWorld) newProcess(number int) *quorumProcess {
	p := &quorumProcess{w: w, number: number}
	p.ctx, p.kill = context.WithCancel(context.Background())
	var all []redis.UniversalClient
	for _, s := range w.servers {
		l := s.net.line(number)
		s.mu.Lock()
		s.lines = append(s.lines, l)
		s.mu.Unlock()
		rdb := s.connect(func(o *redis.Options) {
			o.Dialer = l.Dial
			o.DisableIdentity = true
			o.ReadBufferSize, o.WriteBufferSize = 4<<10, 4<<10
			o.ReadTimeout = []time.Duration{0, 700 * time.Millisecond, 1700 * time.Millisecond}[number]
		})
		rdb.AddHook(redistest.Around(l.hook))
		p.rdbs, p.lines, all = append(p.rdbs, rdb), append(p.lines, l), append(all, rdb)
	}
	p.m = redistest.Must(mutex.NewQuorum(all, mutex.Config{Name: "sim", TTL: quorumTTL}))(w.tb)
	return p
}

func (p *quorumProcess) die() {
	p.kill()
	for i := range p.lines {
		p.lines[i].die()
		_ = p.rdbs[i].Close()
	}
}

func (p *quorumProcess) dead() bool { return p.ctx.Err() != nil }

// work takes locks until a time.
func (p *quorumProcess) work(dice *rand.Rand, until time.Duration) {
	w := p.w
	for w.now() < until && !p.dead() && !w.over() {
		key := []string{"m", "n"}[dice.IntN(2)]
		began := time.Now()
		try := dice.IntN(4) == 0
		var l *mutex.Lock
		var err error
		if try {
			l, err = p.m.TryLock(p.ctx, key)
		} else {
			ctx, cancel := context.WithTimeout(p.ctx, patient)
			l, err = p.m.Lock(ctx, key)
			context.AfterFunc(p.ctx, cancel)
		}
		switch {
		case p.dead():
			return
		case err == nil:
			p.hold(l, time.Since(began), dice)
		case try && (errors.Is(err, leasehold.ErrBusy) || errors.Is(err, leasehold.ErrUnavailable)):
		case w.disturbed(p.number) && errors.Is(err, leasehold.ErrUnavailable) && time.Since(began) < patient:
			w.note("unavailable")
		default:
			w.fail("S4", "process %d: after %v: %v", p.number, time.Since(began), err)
		}
		time.Sleep(time.Duration(dice.IntN(300)) * time.Millisecond)
	}
}

// hold holds a lock: nobody else may hold one, and its token must be the highest.
func (p *quorumProcess) hold(l *mutex.Lock, waited time.Duration, dice *rand.Rand) {
	w := p.w
	valid := func(l *mutex.Lock) bool { return time.Now().Before(l.Deadline()) && l.Context().Err() == nil }
	w.mu.Lock()
	w.longest = max(w.longest, waited)
	if valid(l) {
		if other := w.held[l.Key()]; other != nil && valid(other) {
			w.fail("S1", "%s: process %d holds it with token %d beside one with %d", l.Key(), p.number, l.Token(), other.Token())
		}
		if l.Token() <= w.last[l.Key()] {
			w.fail("S2", "%s: process %d: token %d after %d", l.Key(), p.number, l.Token(), w.last[l.Key()])
		}
		w.held[l.Key()], w.last[l.Key()] = l, l.Token()
		w.note("turns")
	}
	w.mu.Unlock()
	span := time.Duration(dice.IntN(200)) * time.Millisecond
	if dice.IntN(10) == 0 {
		span = 2 * quorumTTL
	}
	lost := false
	select {
	case <-l.Context().Done():
		lost = !p.dead()
	case <-time.After(span):
	case <-p.ctx.Done(): // the process is dead, and believes nothing
	}
	w.mu.Lock()
	if w.held[l.Key()] == l {
		delete(w.held, l.Key())
	}
	w.mu.Unlock()
	cause := context.Cause(l.Context())
	err := l.Unlock()
	switch {
	case p.dead():
	case w.disturbed(p.number) && (err == nil || errors.Is(err, leasehold.ErrLost) || errors.Is(err, leasehold.ErrUnavailable)):
		if lost || err != nil {
			w.note("lost")
		}
	case lost || errors.Is(err, leasehold.ErrLost):
		w.fail("S4", "%s: process %d lost its lock with token %d after %v of %v: %v; %v", l.Key(), p.number, l.Token(), w.now(), span, cause, err)
	case err != nil:
		w.fail("S4", "%s: process %d: unlock: %v", l.Key(), p.number, err)
	}
}
