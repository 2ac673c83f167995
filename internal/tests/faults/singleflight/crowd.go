package singleflight

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// crowdSetup is what a child process is told about its group.
type crowdSetup struct {
	Addr, Family            string
	TTL, LeaseTTL, ErrorTTL time.Duration
	Early                   float64
	MaxLoads                int
}

func (c crowdSetup) open() (*singleflight.Group[string], func()) {
	rdb := redis.NewClient(&redis.Options{Addr: c.Addr, PoolSize: 50})
	g, err := singleflight.New(rdb, singleflight.Config[string]{
		Name: c.Family, TTL: c.TTL, LeaseTTL: c.LeaseTTL, ErrorTTL: c.ErrorTTL, EarlyRefresh: c.Early, MaxLoads: c.MaxLoads, Jitter: -1,
	})
	if err != nil {
		panic(err)
	}
	return g, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "close in a child:", err)
		}
		_ = rdb.Close()
	}
}

// crowdTask is what a child's callers do, all at once. Times are of the clock that
// all processes of the machine share.
type crowdTask struct {
	Key     string
	Start   int64 // µs
	Callers int
	Load    time.Duration
	Fail    string        // the loader's error
	For     time.Duration // call again and again; 0 = once
}

// crowdLoad is one call of a loader.
type crowdLoad struct {
	ID         string // which is its value too
	Key        string
	Began, End int64 // µs
}

// crowdCall is what one call returned, and when.
type crowdCall struct {
	At    int64 // µs
	Value string
	Err   string
}

// crowdDone is what a child's task came to.
type crowdDone struct {
	Loads  []crowdLoad
	Calls  []crowdCall // of a task that calls once
	Errs   []string    // else
	Stats  singleflight.Stats
	Remote int // errors that say that the loader ran elsewhere
}

func init() { redistest.RegisterChild("fault crowd", crowdChild) }

func crowdChild(args []string) int {
	var setup crowdSetup
	if err := json.Unmarshal([]byte(args[0]), &setup); err != nil {
		panic(err)
	}
	g, end := setup.open()
	defer end()
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var task crowdTask
		if err := json.Unmarshal(in.Bytes(), &task); err != nil {
			panic(err)
		}
		out, err := json.Marshal(task.run(g))
		if err != nil {
			panic(err)
		}
		fmt.Printf("done %s\n", out)
	}
	return 0
}

func (task crowdTask) run(g *singleflight.Group[string]) crowdDone {
	var mu sync.Mutex
	var done crowdDone
	load := func(context.Context) (string, error) {
		began := time.Now().UnixMicro()
		time.Sleep(task.Load)
		mu.Lock()
		defer mu.Unlock()
		id := fmt.Sprintf("%d-%d", os.Getpid(), began)
		done.Loads = append(done.Loads, crowdLoad{id, task.Key, began, time.Now().UnixMicro()})
		if task.Fail != "" {
			return "", errors.New(task.Fail)
		}
		return id, nil
	}
	before := g.Stats().Loads
	var all sync.WaitGroup
	time.Sleep(time.Until(time.UnixMicro(task.Start)))
	for range task.Callers {
		all.Go(func() {
			for first := true; first || time.Since(time.UnixMicro(task.Start)) < task.For; first = false {
				v, err := g.Do(context.Background(), task.Key, load)
				c := crowdCall{At: time.Now().UnixMicro(), Value: v}
				if err != nil {
					c.Err = err.Error()
				}
				mu.Lock()
				var remote *singleflight.RemoteError
				switch {
				case errors.As(err, &remote):
					done.Remote++
				}
				switch {
				case task.For == 0:
					done.Calls = append(done.Calls, c)
				case err != nil:
					done.Errs = append(done.Errs, c.Err)
				}
				mu.Unlock()
				if task.For > 0 {
					time.Sleep(2 * time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	done.Stats = g.Stats()
	// A refresh that Stats has counted may still be running.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		mu.Lock()
		loads := len(done.Loads)
		mu.Unlock()
		if int64(loads) >= done.Stats.Loads-before {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	return done
}

// loadingCrowd is some child processes with many callers each.
type loadingCrowd struct {
	tb       testing.TB
	children []*redistest.Child
}

func newFaultCrowd(tb testing.TB, setup crowdSetup, processes int) *loadingCrowd {
	tb.Helper()
	arg, err := json.Marshal(setup)
	if err != nil {
		tb.Fatal(err)
	}
	c := &loadingCrowd{tb: tb}
	for range processes {
		c.children = append(c.children, redistest.StartChild(tb, "fault crowd", string(arg)))
	}
	for _, child := range c.children {
		child.Expect("ready")
	}
	return c
}

// run has all children do a task at the same moment, and joins what it came to.
func (c *loadingCrowd) run(task crowdTask) crowdDone {
	c.tb.Helper()
	task.Start = time.Now().Add(30 * time.Millisecond).UnixMicro()
	text, err := json.Marshal(task)
	if err != nil {
		c.tb.Fatal(err)
	}
	for _, child := range c.children {
		child.Send(string(text))
	}
	var all crowdDone
	for _, child := range c.children {
		line, err := child.LineWithin(task.For + 30*time.Second)
		var done crowdDone
		if err == nil {
			err = json.Unmarshal([]byte(line[min(5, len(line)):]), &done)
		}
		if err != nil {
			c.tb.Fatalf("a child's answer: %v", err)
		}
		all.Loads = append(all.Loads, done.Loads...)
		all.Calls = append(all.Calls, done.Calls...)
		all.Errs = append(all.Errs, done.Errs...)
		all.Remote += done.Remote
		all.Stats.Loads += done.Stats.Loads
		all.Stats.EarlyRefreshes += done.Stats.EarlyRefreshes
		all.Stats.Hits += done.Stats.Hits
	}
	return all
}
