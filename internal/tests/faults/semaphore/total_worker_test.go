package semaphore

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// tenantsChild is a process that holds permits of a family with a total.
const tenantsChild = "tenants"

func init() { redistest.RegisterChild(tenantsChild, runTenants) }

// tenantsSpec is what such a process has to know.
type tenantsSpec struct {
	Addr, Name   string
	Limit, Total int
	TTL          time.Duration
}

func (s tenantsSpec) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // nothing in it can fail to be encoded
	}
	return string(text)
}

// tenants is one such process. On its standard input it gets orders:
//
//	crowd KEY N      N waiters take turns on the key, each of 30 to 70 ms
//	arrive KEY N     N requests, one after the other, with pauses
//	churn KEY N      N waiters take short turns of one or two permits
//	stop             all of them end
//
// On its output it says "turn KEY ARRIVED FROM TO" for each turn, in ns since 1970,
// "arrived KEY" after the last request of an arrive, "error TEXT" where a call failed
// that must not, and "stopped" at the end.
type tenants struct {
	h   *semaphore.Semaphore
	ctx context.Context
	all sync.WaitGroup
	out sync.Mutex
}

func runTenants(args []string) int {
	var spec tenantsSpec
	if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	rdb := redis.NewClient(&redis.Options{Addr: spec.Addr})
	h, err := semaphore.New(rdb, semaphore.Config{Name: spec.Name, Limit: spec.Limit, Total: spec.Total, TTL: spec.TTL})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &tenants{h: h, ctx: ctx}
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		var order, key string
		var n int
		_, _ = fmt.Sscan(orders.Text(), &order, &key, &n)
		switch order {
		case "crowd":
			p.repeat(n, func() { p.turn(key, 1, 30*time.Millisecond+rand.N(40*time.Millisecond)) })
		case "churn":
			p.repeat(n, func() { p.turn(key, 1+rand.N(2), rand.N(8*time.Millisecond)) })
		case "arrive":
			p.all.Go(func() { p.arrive(key, n) })
		case "stop":
			stop()
		}
		if order == "stop" {
			break
		}
	}
	stop()
	p.all.Wait()
	closing, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	if err := h.Close(closing); err != nil {
		p.say("error close: %v", err)
	}
	p.say("stopped")
	return 0
}

func (p *tenants) say(format string, args ...any) {
	p.out.Lock()
	defer p.out.Unlock()
	_, _ = fmt.Printf(format+"\n", args...) // after a kill of the parent nobody reads it
}

// repeat has n goroutines do something again and again until the end.
func (p *tenants) repeat(n int, do func()) {
	for range n {
		p.all.Go(func() {
			for p.ctx.Err() == nil {
				do()
			}
		})
	}
}

func (p *tenants) arrive(key string, n int) {
	for range n {
		time.Sleep(100*time.Millisecond + rand.N(100*time.Millisecond))
		p.turn(key, 1, 30*time.Millisecond+rand.N(40*time.Millisecond))
	}
	p.say("arrived %s", key)
}

// turn takes n permits, holds them and gives them back.
func (p *tenants) turn(key string, n int, hold time.Duration) {
	arrived := time.Now()
	l, err := p.h.AcquireN(p.ctx, key, n)
	if err != nil {
		if p.ctx.Err() == nil && !errors.Is(err, leasehold.ErrUnavailable) && !errors.Is(err, leasehold.ErrInvalid) {
			p.say("error acquire %s: %v", key, err)
		}
		return
	}
	from := time.Now()
	select {
	case <-time.After(hold):
	case <-l.Context().Done():
	}
	to := time.Now()
	_ = l.Release() // a lost lease was believed in no longer than that
	p.say("turn %s %d %d %d", key, arrived.UnixNano(), from.UnixNano(), to.UnixNano())
}
