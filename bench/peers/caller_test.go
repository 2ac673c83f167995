package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func init() { redistest.RegisterChild("callers", callers) }

// order is what the benchmark tells a process of callers, as a line of JSON: at
// that moment, all of them ask that cache, or "ping", for that key.
type order struct {
	At  int64 // Unix time in ns: the processes share a machine, and so its clock
	Who string
	Key string
}

// answer is what a process tells of an order, as a line of JSON. Times are as in
// order.
type answer struct {
	Loads int           // calls of the loader
	Ended int64         // when the first of them ended, 0 = there was none; or when the ping was sent
	Got   []int64       // when each caller that did not load had the value
	Trip  time.Duration // of the ping
	Err   string
}

// callers is a process of goroutines that share a client and ask at the same
// time. Its arguments are the server's URL, how many they are, how long a load
// takes, and the lease.
func callers(args []string) int {
	if err := serve(args); err != nil {
		fmt.Fprintln(os.Stderr, "callers:", err)
		return 1
	}
	return 0
}

func serve(args []string) error {
	if len(args) != 4 {
		return errors.New("want url, callers, load and lease")
	}
	o, err := redis.ParseURL(args[0])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	takes, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	lease, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	harness.Pool(n)(o)
	rdb := redis.NewClient(o)
	defer rdb.Close()
	open := map[string]fetch{}
	for who, opener := range caches {
		get, stop, err := opener(rdb, lease)
		if err != nil {
			return err
		}
		defer stop()
		open[who] = get
		// All have a connection and a cached value once before what counts.
		if a := ask(get, n, 0, order{Key: who + "-warm"}); a.Err != "" {
			return fmt.Errorf("%s: warm up: %s", who, a.Err)
		}
	}
	if a := ping(rdb, n, order{}); a.Err != "" {
		return errors.New(a.Err)
	}

	out := json.NewEncoder(os.Stdout)
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var what order
		if err := json.Unmarshal(in.Bytes(), &what); err != nil {
			return err
		}
		var a answer
		switch get, known := open[what.Who]; {
		case known:
			a = ask(get, n, takes, what)
		case what.Who == "ping":
			a = ping(rdb, n, what)
		default:
			a.Err = "no such cache: " + what.Who
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

// ask lets n callers ask for a key, whose load takes so long.
func ask(get fetch, n int, takes time.Duration, what order) (a answer) {
	want := ada(20)
	var loads, ended atomic.Int64
	got, errs := make([]int64, n), make([]error, n)
	time.Sleep(time.Until(time.Unix(0, what.At)))
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			var mine atomic.Bool // a library may load on another goroutine
			u, err := get(what.Key, func() (user, error) {
				mine.Store(true)
				loads.Add(1)
				time.Sleep(takes)
				ended.CompareAndSwap(0, time.Now().UnixNano())
				return want, nil
			})
			now := time.Now().UnixNano()
			if err == nil && u.Name != want.Name {
				err = errors.New("another value")
			}
			if errs[i] = err; !mine.Load() {
				got[i] = now
			}
		})
	}
	all.Wait()
	a.Loads, a.Ended = int(loads.Load()), ended.Load()
	return a.with(got, errors.Join(errs...))
}

// ping is the least that n callers can wait for: one of them asks the server,
// once, and tells the others.
func ping(rdb *redis.Client, n int, what order) (a answer) {
	told := make(chan struct{})
	got := make([]int64, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-told
			got[i] = time.Now().UnixNano()
		})
	}
	time.Sleep(time.Until(time.Unix(0, what.At)))
	began := time.Now()
	err := rdb.Ping(context.Background()).Err()
	a.Trip, a.Ended = time.Since(began), began.UnixNano()
	close(told)
	all.Wait()
	return a.with(got, err)
}

// with adds when callers had what they asked for, 0 being none of these.
func (a answer) with(got []int64, err error) answer {
	for _, at := range got {
		if at != 0 {
			a.Got = append(a.Got, at)
		}
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}
