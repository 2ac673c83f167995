package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

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
