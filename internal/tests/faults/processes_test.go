package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
)

const (
	callers = 50 // of each process
	ttl     = 3 * time.Second
)

func raise(most *atomic.Int64, d time.Duration) {
	for old := most.Load(); int64(d) > old && !most.CompareAndSwap(old, int64(d)); old = most.Load() {
	}
}

func init() { redistest.RegisterChild("multi crowd", crowd) }

// crowd is one process: its arguments are the address behind its network, that of the server,
// the family, the seed and its number. Each of its callers takes two to four of eight locks
// again and again, until the input ends. It says when each was served. A line of input says that a process was killed.
//
// A holder marks its keys at the server. A mark ends with its lease, so one that is found is of another holder.
func crowd(args []string) int {
	rdb, marks := redis.NewClient(&redis.Options{Addr: args[0]}), redis.NewClient(&redis.Options{Addr: args[1]})
	seed, _ := strconv.ParseUint(args[3], 10, 64)
	locks, err := mutex.New(rdb, mutex.Config{Name: args[2], TTL: ttl})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	background := context.Background()
	fails := func(format string, a ...any) { marks.RPush(background, args[2]+":errors", fmt.Sprintf(format, a...)) }
	mark := func(keys []int, l *multi.Lease, by string) (taken bool) {
		for _, k := range keys {
			err := marks.Do(background, "SET", fmt.Sprint(args[2], ":mark:", k), by, "NX", "PXAT", l.Deadline().UnixMilli()).Err()
			if taken = taken || errors.Is(err, redis.Nil); err != nil && !taken {
				fails("a mark: %v", err)
			}
		}
		return taken
	}
	var killed atomic.Bool
	var served, cut atomic.Int64
	var longest, usual atomic.Int64 // waits: of all, and of those before the kill
	ctx, end := context.WithCancel(background)
	go func() {
		defer end()
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			killed.Store(true)
		}
	}()
	fmt.Println("running", 1)
	var all, unserved sync.WaitGroup
	unserved.Add(callers)
	go func() {
		unserved.Wait()
		fmt.Println("served")
	}()
	for i := range callers {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		by := fmt.Sprint(args[4], "-", i)
		all.Go(func() {
			turns := 0
			for ctx.Err() == nil {
				keys := random.Perm(8)[:2+random.IntN(3)]
				var items []multi.Item
				for _, k := range keys {
					items = append(items, multi.Lock(locks, fmt.Sprint(k)))
				}
				began := time.Now()
				err := multi.Do(ctx, func(ctx context.Context, l *multi.Lease) error {
					waited := time.Since(began)
					raise(&longest, waited)
					if !killed.Load() {
						raise(&usual, waited)
					}
					if mark(keys, l, by) && ctx.Err() == nil {
						fails("%s holds one of %v beside another", by, keys)
					}
					time.Sleep(time.Millisecond)
					for _, k := range keys {
						marks.Eval(background, "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end", []string{fmt.Sprint(args[2], ":mark:", k)}, by)
					}
					return nil
				}, items...)
				switch {
				case err == nil:
					if turns++; turns == 1 {
						unserved.Done()
					}
					served.Add(1)
				case ctx.Err() != nil:
				case errors.Is(err, leasehold.ErrLost), errors.Is(err, leasehold.ErrUnavailable):
					cut.Add(1)
					time.Sleep(10 * time.Millisecond)
				default:
					fails("%v", err)
				}
			}
		})
	}
	all.Wait()
	closing, cancel := context.WithTimeout(background, 10*time.Second)
	defer cancel()
	if err := locks.Close(closing); err != nil {
		fails("Close: %v", err)
	}
	fmt.Println("done", served.Load(), cut.Load(), longest.Load(), usual.Load())
	return 0
}

// 200 callers in four processes take two to four of eight locks, in any order, while networks
// are cut and one process is killed. LEASEHOLD_SOAK makes it longer.
func TestProcessesUnderCutsAndAKill(t *testing.T) {
	lasts := harness.Soak(t, 8*time.Second)
	srv := redistest.Shared(t, redistest.Newest(t))
	rdb, family, seed := srv.Client(), redistest.Name(t), redistest.Seed(t)
	var networks []*redistest.Proxy
	var all []*redistest.Child
	for p := range 4 {
		networks = append(networks, redistest.NewProxy(t, srv.Addr()))
		all = append(all, redistest.StartChild(t, "multi crowd", networks[p].Addr(), srv.Addr(), family, fmt.Sprint(seed+uint64(p)), fmt.Sprint(p)))
		all[p].Expect("running")
	}
	for n := range 10 {
		time.Sleep(lasts / 10)
		if n == 3 {
			for p, c := range all {
				line, err := c.LineWithin(time.Minute)
				redistest.CheckNow(t, err == nil && line == "served", "process %d, before each of its callers was served: %q, %v", p, line, err)
			}
			all[3].Kill()
			for _, c := range all[:3] {
				c.Send("killed")
			}
			continue
		}
		networks[n%3].CloseAll()
	}
	for p, c := range all[:3] {
		c.CloseInput()
		line, err := c.LineWithin(30 * time.Second)
		redistest.CheckNow(t, err == nil, "process %d: %v", p, err)
		var served, cut int
		var longest, usual time.Duration
		_, err = fmt.Sscanf(line, "done %d %d %d %d", &served, &cut, &longest, &usual)
		redistest.CheckNow(t, err == nil, "process %d said %q: %v", p, line, err)
		t.Logf("process %d: %d turns, %d calls that a cut ended, longest wait %v, before the kill %v", p, served, cut, longest, usual)
		most := ttl + time.Second + 2*usual
		redistest.Check(t, longest <= most, "a caller of process %d waited %v; want %v at most", p, longest, most)
	}
	for _, text := range rdb.LRange(t.Context(), family+":errors", 0, -1).Val() {
		t.Error(text)
	}
	for k := range 8 {
		for _, part := range []string{"holders", "queue"} {
			redistest.Eventually(t, fmt.Sprintf("the %s of key %d to go", part, k), func() bool {
				return rdb.Exists(t.Context(), harness.Part(harness.Locks, family, fmt.Sprint(k), part)).Val() == 0
			})
		}
	}
}
