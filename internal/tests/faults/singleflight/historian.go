package singleflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// valueHistory is what happened in one process. Times are µs of the clock that all
// processes of the machine share.
type valueHistory struct {
	Loads []crowdLoad
	Reads []readSpan
	Drops []dropSpan
	Errs  map[string]int // by text, of calls that failed
}

type readSpan struct {
	Key           string
	Called        int64
	Value, Source string
}

// dropSpan is an Invalidate that returned without an error: another caller that failed may
// have happened at any time, and promises nothing.
type dropSpan struct {
	Key            string
	Called, Return int64
}

// historianCount is how many processes write a history together.
const historianCount = 4

func init() { redistest.RegisterChild("fault history", historyChild) }

// The arguments are a setup, a seed, how long to run, and a file for the history.
func historyChild(args []string) int {
	var setup crowdSetup
	if err := json.Unmarshal([]byte(args[0]), &setup); err != nil {
		panic(err)
	}
	seed, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		panic(err)
	}
	span, err := time.ParseDuration(args[2])
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: setup.Addr, PoolSize: 20, ReadTimeout: 300 * time.Millisecond, MaxRetries: 1})
	defer rdb.Close()
	cfg := singleflight.Config[string]{Name: setup.Family, TTL: setup.TTL, LeaseTTL: setup.LeaseTTL}
	switch seed % historianCount { // each process differs
	case 0:
		cfg.StaleFor = 300 * time.Millisecond
	case 1:
		cfg.StaleIfError, cfg.SoftTimeout = 300*time.Millisecond, 5*time.Millisecond
	case 2:
		cfg.EarlyRefresh = 1
	case 3:
		cfg.OnUnavailable = singleflight.LoadLocally
	}
	g, err := singleflight.New(rdb, cfg)
	if err != nil {
		panic(err)
	}
	h := &historianProcess{g: g, id: args[1], history: valueHistory{Errs: map[string]int{}}}
	fmt.Println("ready")
	_, _ = fmt.Scanln() // all begin together
	var all sync.WaitGroup
	end := time.Now().Add(span)
	for w := range 6 {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		all.Go(func() {
			for time.Now().Before(end) {
				h.turn(rng)
			}
		})
	}
	all.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := g.Close(ctx); err != nil {
		h.history.Errs["close: "+err.Error()]++
	}
	out, err := json.Marshal(h.history)
	if err == nil {
		err = os.WriteFile(args[3], out, 0o600)
	}
	if err != nil {
		panic(err)
	}
	fmt.Println("done")
	return 0
}

// historianProcess acts at random and writes down what happens.
type historianProcess struct {
	g  *singleflight.Group[string]
	id string

	mu      sync.Mutex
	loads   int
	history valueHistory
}

func (h *historianProcess) turn(rng *rand.Rand) {
	key := fmt.Sprint("k", rng.IntN(3))
	within := time.Duration(50+rng.IntN(5000)) * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	called := time.Now().UnixMicro()
	read := func(key, value, source string) {
		value = strings.TrimRight(value, ".")
		h.history.Reads = append(h.history.Reads, readSpan{key, called, value, source})
	}
	switch rng.IntN(12) {
	case 0:
		err := h.g.Invalidate(ctx, key)
		h.note(err, within, func() { h.history.Drops = append(h.history.Drops, dropSpan{key, called, time.Now().UnixMicro()}) })
	case 1:
		loads := map[string]loaderFunc{}
		for k := range 3 {
			key := fmt.Sprint("k", k)
			loads[key] = h.loader(key, rng)
		}
		found, err := h.g.DoMany(ctx, []string{"k0", "k1", "k2"}, func(ctx context.Context, missing []string) (map[string]string, error) {
			values := map[string]string{}
			for _, key := range missing {
				values[key], _ = loads[key](ctx)
			}
			return values, nil
		})
		h.note(err, within, func() {
			for key, value := range found {
				read(key, value, "of many")
			}
		})
	default:
		r, err := h.g.Fetch(ctx, key, h.loader(key, rng))
		h.note(err, within, func() { read(key, r.Value, r.Source.String()) })
	}
	time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
}

// note writes down a success, or why there was none: that a machine stands still
// for a short deadline is no reason.
func (h *historianProcess) note(err error, within time.Duration, success func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		success()
	case errors.Is(err, context.DeadlineExceeded) && within < 2*time.Second:
	case errors.Is(err, context.DeadlineExceeded):
		h.history.Errs["the caller's deadline"]++
	default:
		text := err.Error()
		if i := strings.LastIndex(text, ": "); i > 0 {
			text = text[i+2:]
		}
		h.history.Errs[text]++
	}
}

// loader makes one whose value is the number of its load.
func (h *historianProcess) loader(key string, rng *rand.Rand) loaderFunc {
	span := time.Duration(rng.IntN(20)) * time.Millisecond
	tail := ""
	if rng.IntN(2) == 0 {
		tail = strings.Repeat(".", 6000) // too long to ride on a message
	}
	return func(context.Context) (string, error) {
		h.mu.Lock()
		h.loads++
		id := fmt.Sprintf("%s-%d", h.id, h.loads)
		h.mu.Unlock()
		began := time.Now().UnixMicro()
		time.Sleep(span)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.history.Loads = append(h.history.Loads, crowdLoad{id, key, began, time.Now().UnixMicro()})
		return id + tail, nil
	}
}
