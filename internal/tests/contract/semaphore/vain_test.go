package semaphore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// A vainScene is a family with a total of 10 in which modest tenants take one permit at a time, while others ask for
// more than is free. A permit is held all the time, so none of them can be granted all.
type vainScene struct {
	f   *fixture
	ctx context.Context // ends with the scene
	wg  sync.WaitGroup

	mu      sync.Mutex
	turns   map[string]int           // by the name of tenants, without their number
	longest map[string]time.Duration // wait
}

// open makes a handle, as a process of its own has.
func (v *vainScene) open() *semaphore.Semaphore {
	s, _ := v.f.open(limit(10), total(10))
	return s
}

// repeat runs fn over and over until the scene ends.
func (v *vainScene) repeat(fn func(i int)) {
	v.wg.Go(func() {
		for i := 0; v.ctx.Err() == nil; i++ {
			fn(i)
		}
	})
}

// take waits for n permits of key for that long at most, and keeps them for a while.
func (v *vainScene) take(s *semaphore.Semaphore, key string, n int, wait, hold time.Duration) {
	ctx, cancel := context.WithTimeout(v.ctx, wait)
	defer cancel()
	began := time.Now()
	l, err := s.AcquireN(ctx, key, n)
	waited := time.Since(began)
	name := strings.TrimRight(key, "0123456789")
	v.mu.Lock()
	v.longest[name] = max(v.longest[name], waited)
	if err == nil {
		v.turns[name]++
	}
	v.mu.Unlock()
	if err == nil {
		time.Sleep(hold)
		_ = l.Release()
	}
}

// runVain runs a scene with an attack.
func runVain(f *fixture, lasts time.Duration, attack func(v *vainScene)) *vainScene {
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	v := &vainScene{f: f, ctx: ctx, turns: map[string]int{}, longest: map[string]time.Duration{}}
	defer release(f, f.take(v.open(), "long", 1))
	attack(v)
	s := v.open()
	for i := range 4 {
		v.repeat(func(int) {
			v.take(s, fmt.Sprint("modest", i), 1, time.Minute, modestHold)
			time.Sleep(modestPause)
		})
	}
	v.wg.Wait()
	return v
}

const (
	givesUp     = 900 * time.Millisecond
	modestHold  = 100 * time.Millisecond
	modestPause = 20 * time.Millisecond
)

// vainAttacks are ways to stop a family by asking for more than is free.
var vainAttacks = map[string]func(v *vainScene){
	"one tenant that gives up in time": func(v *vainScene) { v.greedy(2, "greedy", givesUp) },
	"one tenant that never gives up":   func(v *vainScene) { v.greedy(2, "greedy", time.Minute) },
	"many tenants": func(v *vainScene) {
		for i := range 20 {
			v.greedy(1, fmt.Sprintf("greedy%02d", i), givesUp+time.Duration(i)*time.Millisecond)
		}
	},
	"many tenants that never give up": func(v *vainScene) {
		for i := range 20 {
			v.greedy(1, fmt.Sprintf("greedy%02d", i), time.Minute)
		}
	},
	"new keys, each before the last": func(v *vainScene) {
		s := v.open()
		for j := range 2 {
			v.repeat(func(i int) { v.take(s, fmt.Sprintf("a%04d", 9999-2*i-j), 10, 200*time.Millisecond, 0) })
		}
	},
	"small requests between": func(v *vainScene) {
		s := v.open()
		v.greedy(1, "greedy", givesUp)
		v.repeat(func(int) { v.take(s, "greedy", 1, givesUp, 10*time.Millisecond) })
		v.repeat(func(int) { v.take(s, "greedy2", 9, givesUp/2, 10*time.Millisecond) })
	},
	"a tenant that makes its own room": func(v *vainScene) {
		s := v.open()
		v.repeat(func(int) {
			own, err := s.AcquireN(v.ctx, "greedy", 4)
			if err != nil {
				return
			}
			v.wg.Go(func() {
				time.Sleep(givesUp)
				_ = own.Release()
			})
			v.take(s, "greedy", 9, 10*time.Second, time.Millisecond)
		})
	},
}

// greedy has n callers ask for all permits, over and over, each time for that long.
func (v *vainScene) greedy(n int, key string, wait time.Duration) {
	s := v.open()
	for range n {
		v.repeat(func(int) { v.take(s, key, 10, wait, 0) })
	}
}

// A tenant that asks for more than is free does not stop the others, however it goes about it: neither modest
// ones, nor an honest one with a heavy request.
func TestRequestsInVainStopNobody(t *testing.T) {
	const lasts = 6 * time.Second
	calm := 4 * int(lasts/(modestHold+modestPause)) // in a bubble nothing else takes time
	honest := func(v *vainScene) {
		s := v.open()
		v.repeat(func(int) {
			v.take(s, "honest", 7, time.Minute, 20*time.Millisecond)
			time.Sleep(20 * time.Millisecond)
		})
	}
	for name, attack := range vainAttacks {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				v := runVain(f, lasts, attack)
				redistest.Check(t, v.turns["modest"] >= calm/4, "modest tenants had %d turns; without the attack %d", v.turns["modest"], calm)
				redistest.AtMost(t, v.longest["modest"], 3*time.Second, "a modest tenant waited %v")
			})
		})
	}
	for _, name := range []string{"one tenant that gives up in time", "many tenants", "many tenants that never give up"} {
		t.Run("an honest one beside "+name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				v := runVain(f, lasts, func(v *vainScene) {
					honest(v)
					vainAttacks[name](v)
				})
				redistest.AtLeast(t, v.turns["honest"], 4, "the honest tenant had %d turns")
			})
		})
	}
}
