package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

// phase is a part of the show.
type phase struct {
	name    string
	orders  []string
	lasts   time.Duration
	total   int // 0 = as configured
	limited int // of greedy-1, 0 = as configured
}

// stage has the service, the load and what came of it.
type stage struct {
	out   *demo.Output
	fleet *demo.Fleet
	first *demo.Process // takes the orders that are for all, through Redis
	all   []*demo.Process
	urls  []string
	load  *load
	note  string

	mu      sync.Mutex
	results []*result // of the phases; the last one is under way
}

func newStage(ctx context.Context, out *demo.Output, srv *demo.Server) (*stage, error) {
	s := &stage{out: out, fleet: demo.NewFleet(srv, demo.RunName("tenants"))}
	for i := range processes {
		name := string(rune('A' + i))
		p, err := s.fleet.Start(demo.Spec{Name: name, Role: "service"})
		if err != nil {
			s.close()
			return nil, err
		}
		s.all = append(s.all, p)
		e, err := s.fleet.AwaitFrom(ctx, name, listens)
		if err != nil {
			s.close()
			return nil, err
		}
		s.urls = append(s.urls, "http://"+e.Text)
	}
	s.first = s.all[0]
	s.load = startLoad(ctx, s.urls, s.took)
	return s, nil
}

// took notes a request that was answered. It counts for the phase in which it was sent;
// between two phases what the first one began comes to its end.
func (s *stage) took(tenant string, sent time.Time, a answer, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.results) - 1; i >= 0; i-- {
		if r := s.results[i]; !sent.Before(r.began) {
			if r.ended.IsZero() || sent.Before(r.ended) {
				r.add(tenant, sent, a, status)
			}
			return
		}
	}
}

// order has the service change its mode or its limits, and waits until it has.
func (s *stage) order(line string) error {
	to := s.all
	if line != "fair" && line != "fifo" {
		to = to[:1] // Redis tells the others
	}
	known := len(s.fleet.Events())
	for _, p := range to {
		if err := p.Send(line); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, p := range to {
		e, err := s.fleet.Await(ctx, "the order is obeyed", func(e demo.Event) bool {
			return e.Index >= known && e.From == p.Name && e.Kind == obeyed
		})
		if err != nil {
			return err
		}
		if e.Text != line {
			return fmt.Errorf("%s", strings.TrimPrefix(e.Text, line+": "))
		}
	}
	return nil
}

// begin begins to count for a phase.
func (s *stage) begin(p phase) *result {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := newResult(p)
	s.results = append(s.results, r)
	return r
}

// modest is how many requests of modest tenants a phase has.
func (s *stage) modest(r *result) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits, refused := r.modest()
	return len(waits) + refused
}

// play plays a phase to its end.
func (s *stage) play(ctx context.Context, p phase) error {
	for _, line := range p.orders {
		if err := s.order(line); err != nil {
			return err
		}
	}
	// What was let in, or queued, by the rules before is over by then.
	if len(s.results) == 0 || p.orders[0] == "fair" {
		wait(ctx, maxWait)
	} else {
		wait(ctx, 300*time.Millisecond)
	}
	s.out.Say("%s", p.name)
	r := s.begin(p)
	wait(ctx, p.lasts)
	for more := 0; more < 100 && ctx.Err() == nil && s.modest(r) < enough; more++ { // the machine is busy
		wait(ctx, 100*time.Millisecond)
	}
	s.mu.Lock()
	r.ended = time.Now()
	s.mu.Unlock()
	return ctx.Err()
}

// watch is the live view.
func (s *stage) watch(r *result) string {
	sum := map[string]counts{}
	for _, url := range s.urls {
		res, err := http.Get(url + "/state")
		if err != nil {
			continue
		}
		var all map[string]counts
		if json.NewDecoder(res.Body).Decode(&all) == nil {
			for tenant, c := range all {
				sum[tenant] = counts{sum[tenant].Working + c.Working, sum[tenant].Waiting + c.Waiting}
			}
		}
		_ = res.Body.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.view(sum)
}

func (s *stage) stopLoad() {
	if s.load != nil {
		s.load.close()
		s.load = nil
	}
}

func (s *stage) close() {
	s.stopLoad()
	s.fleet.Close()
}
