package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/semaphore"
)

// What a process of the service reports: listens, with its address in Text, and obeyed,
// with the order in Text.
const (
	listens = "listens"
	obeyed  = "obeyed"
)

// shortest and longest are how long a request takes.
const shortest, longest = 40 * time.Millisecond, 80 * time.Millisecond

// answer is what the service answers: when the request began to wait for its turn, and
// when the service worked on it.
type answer struct {
	Came time.Time `json:"came"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// came is the key of the time at which a request began to wait, in its Context.
type came struct{}

// counts is how many requests of a tenant a process has.
type counts struct {
	Working int `json:"working"`
	Waiting int `json:"waiting"`
}

// service is one process of the service.
func service(ctx context.Context, c *demo.Child) error {
	fair, err := semaphore.New(c.Redis, semaphore.Config{
		Name: c.Run + "-fair", Limit: limit, Total: total, TTL: 10 * time.Second, MaxWait: maxWait, MaxWaiters: 500, MaxWaitersTotal: 2000,
	})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, fair)
	queue, err := semaphore.New(c.Redis, semaphore.Config{Name: c.Run + "-plain", Limit: total, TTL: 10 * time.Second, MaxWait: maxWait})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, queue)

	s := &server{fair: fair, all: map[string]*counts{}}
	var mode atomic.Value
	mode.Store(gate(fair))
	work := capped(func() gate { return mode.Load().(box).gate }, tenantOf, http.HandlerFunc(s.work))
	mode = atomic.Value{}
	mode.Store(box{fair})
	mux := http.NewServeMux()
	mux.Handle("/work", s.counted(work))
	mux.HandleFunc("/state", s.state)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	c.Report(demo.Event{Kind: listens, Text: listener.Addr().String()})
	for {
		select {
		case line := <-c.Orders:
			var err error
			switch line {
			case "fair":
				mode.Store(box{fair})
			case "fifo":
				mode.Store(box{plain{queue}})
			default:
				err = s.set(ctx, line)
			}
			if err != nil {
				line += ": " + err.Error()
			}
			c.Report(demo.Event{Kind: obeyed, Text: line})
		case err := <-ended:
			return err
		case <-ctx.Done():
			_ = web.Close()
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		}
	}
}

// box makes gates of different types fit into one atomic.Value.
type box struct{ gate }

func tenantOf(r *http.Request) string { return r.URL.Query().Get("tenant") }

type server struct {
	fair *semaphore.Semaphore

	mu  sync.Mutex
	all map[string]*counts
}

// set obeys "total 16" and "limit greedy-1 2".
func (s *server) set(ctx context.Context, line string) error {
	words := strings.Fields(line)
	if len(words) < 2 {
		return fmt.Errorf("want fifo, fair, total N or limit TENANT N")
	}
	n, err := strconv.Atoi(words[len(words)-1])
	switch {
	case err != nil:
		return fmt.Errorf("%q is no number", words[len(words)-1])
	case words[0] == "total" && len(words) == 2:
		return s.fair.SetTotal(ctx, n)
	case words[0] == "limit" && len(words) == 3:
		return s.fair.SetLimit(ctx, words[1], n)
	}
	return fmt.Errorf("want fifo, fair, total N or limit TENANT N")
}

// count changes what is known of a tenant.
func (s *server) count(tenant string, working, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.all[tenant]
	if c == nil {
		c = new(counts)
		s.all[tenant] = c
	}
	c.Working += working
	c.Waiting += waiting
}

// counted counts the requests that are under way, and notes when they came.
func (s *server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.count(tenantOf(r), 0, 1)
		defer s.count(tenantOf(r), 0, -1)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), came{}, time.Now())))
	})
}

// work is what the caps protect.
func (s *server) work(w http.ResponseWriter, r *http.Request) {
	s.count(tenantOf(r), 1, -1)
	defer s.count(tenantOf(r), -1, 1)
	a := answer{From: time.Now()}
	a.Came, _ = r.Context().Value(came{}).(time.Time)
	time.Sleep(shortest + rand.N(longest-shortest))
	a.To = time.Now()
	_ = json.NewEncoder(w).Encode(a)
}

// state says what is under way.
func (s *server) state(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = json.NewEncoder(w).Encode(s.all)
}
