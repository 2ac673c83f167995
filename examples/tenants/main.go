// Tenants shows an HTTP service that caps the requests in flight of each tenant and of
// all tenants together. Two greedy tenants send all that they can; eight modest ones
// send a request now and then. With fair shares a modest tenant's request is let in
// within two turns; in one plain queue it waits behind all that the greedy ones sent.
// Then the total and a limit are changed while requests are in flight.
//
//	go run ./examples/tenants
//
// It uses the Redis or Valkey at REDIS_URL, or an embedded server where that is not
// set. It exits with 1 if a limit was passed, or if a modest tenant waited too long.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/semaphore"
)

var program = demo.Program{
	Name:  "tenants",
	Limit: 55 * time.Second,
	Run:   run,
	Roles: map[string]demo.Role{"service": service},
}

func main() { program.Main() }

const (
	limit     = 4 // of a tenant, as the processes are configured
	total     = 8 // of all
	processes = 3 // of the service
	maxWait   = 3 * time.Second
)

// newCaps makes the handle that the service's processes use, and the operator.
func newCaps(rdb redis.UniversalClient, run string) (*semaphore.Semaphore, error) {
	return semaphore.New(rdb, semaphore.Config{
		Name: run + "-fair", Limit: limit, Total: total, TTL: 10 * time.Second,
		MaxWait: maxWait, MaxWaiters: 500, MaxWaitersTotal: 2000,
	})
}

// acquire lets a request of a tenant in, or says why not.
type acquire func(ctx context.Context, tenant string) (*semaphore.Lease, error)

// capped lets as many requests through to next as the caps allow. A request waits for its turn
// as long as MaxWait; then it is answered with 429 and Retry-After. next runs with the lease's
// Context, which ends if the lease is lost.
func capped(acquire acquire, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := acquire(r.Context(), r.URL.Query().Get("tenant"))
		if err != nil {
			refuse(w, err)
			return
		}
		defer lease.Release() // a lease that is lost has ended already
		next.ServeHTTP(w, r.WithContext(lease.Context()))
	})
}

// refuse answers a request that was not let in.
func refuse(w http.ResponseWriter, err error) {
	busy := new(leasehold.BusyError)
	switch {
	case errors.As(err, &busy):
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(busy.RetryAfter.Seconds()))))
		http.Error(w, busy.Error(), http.StatusTooManyRequests)
	case errors.Is(err, leasehold.ErrQueueFull):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests wait already", http.StatusTooManyRequests)
	case errors.Is(err, context.Canceled): // the client has gone
	default:
		http.Error(w, "the service cannot tell how busy it is", http.StatusServiceUnavailable)
	}
}

// answer is what the service answers: when it began to work on the request, and when it ended.
type answer struct{ Came, From, To time.Time }

// service is one process of the service. Behind /fair the tenants have their caps; behind /fifo
// one queue serves all.
func service(ctx context.Context, c *demo.Child) error {
	fair, err := newCaps(c.Redis, c.Run)
	if err != nil {
		return err
	}
	defer demo.Close(ctx, fair)
	queue, err := semaphore.New(c.Redis, semaphore.Config{Name: c.Run + "-fifo", Limit: total, TTL: 10 * time.Second, MaxWait: maxWait})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, queue)
	work := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := answer{From: time.Now()}
		time.Sleep(40*time.Millisecond + rand.N(40*time.Millisecond))
		a.To = time.Now()
		_ = json.NewEncoder(w).Encode(a)
	})
	mux := http.NewServeMux()
	mux.Handle("/fair", capped(fair.Acquire, work))
	mux.Handle("/fifo", capped(func(ctx context.Context, _ string) (*semaphore.Lease, error) { return queue.Acquire(ctx, "all") }, work))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	c.Report(demo.Event{Kind: "listens", Text: listener.Addr().String()})
	<-ctx.Done()
	_ = web.Close()
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// run shows one plain queue, then fair shares, then limits that change.
func run(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
	out.Print("Two greedy tenants and eight modest ones, %d processes of the service.", processes)
	out.Print("They use %s.", srv.Label)
	out.Print("At most %d requests in flight of a tenant, %d of all.\n", limit, total)
	name := demo.RunName("tenants")
	fleet := demo.NewFleet(srv, name)
	defer fleet.Close()
	var addrs []string
	for i := range processes {
		who := string(rune('A' + i))
		if _, err := fleet.Start(demo.Spec{Name: who, Role: "service"}); err != nil {
			return nil, err
		}
		e, err := fleet.AwaitFrom(ctx, who, "listens")
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, e.Text)
	}
	rdb, err := demo.Client(srv.URL)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	caps, err := newCaps(rdb, name) // an operator's, to set limits
	if err != nil {
		return nil, err
	}
	defer demo.Close(ctx, caps)
	var results []*result
	for _, p := range []phase{
		{name: "one plain queue", path: "/fifo", lasts: 5 * time.Second, total: total, limited: limit},
		{name: "fair shares", path: "/fair", lasts: 5 * time.Second, total: total, limited: limit},
		{name: "fair shares, total 16", path: "/fair", lasts: 3 * time.Second, total: 16, limited: limit},
		{name: "fair shares, greedy-1 at most 2", path: "/fair", lasts: 3 * time.Second, total: 16, limited: 2},
	} {
		out.Say("%s", p.name)
		if err := errors.Join(caps.SetTotal(ctx, p.total), caps.SetLimit(ctx, "greedy-1", p.limited)); err != nil {
			return nil, err
		}
		r := &result{phase: p, tenants: map[string]*tenant{}}
		r.load(ctx, addrs)
		results = append(results, r)
	}
	// Limits that are set have no expiry: 0 removes them.
	if err := errors.Join(caps.SetTotal(ctx, 0), caps.SetLimit(ctx, "greedy-1", 0), fleet.Stop(ctx)); err != nil {
		return nil, err
	}
	for _, r := range results {
		out.Print("%s", r.table())
	}
	problems := verdict(results)
	if len(problems) == 0 {
		out.Print("\nNo limit was passed, and fair shares let every modest tenant in at its turn.")
	}
	return problems, nil
}

// greedyClients is how many requests a greedy tenant has under way all the time.
const greedyClients = 60

var tenants = []string{
	"greedy-1", "greedy-2",
	"modest-1", "modest-2", "modest-3", "modest-4", "modest-5", "modest-6", "modest-7", "modest-8",
}

func isModest(tenant string) bool { return tenant[0] == 'm' }

// phase is a part of the show.
type phase struct {
	name, path string
	lasts      time.Duration
	total      int
	limited    int // the limit of greedy-1
}

// result is what was seen of a phase.
type result struct {
	phase
	mu      sync.Mutex
	tenants map[string]*tenant
}

type tenant struct {
	served          []answer // Came is when the request was sent
	refused, failed int
}

// load sends the requests of all tenants, and returns when all are answered.
func (r *result) load(ctx context.Context, addrs []string) {
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer web.CloseIdleConnections()
	var clients sync.WaitGroup
	end := time.Now().Add(r.lasts)
	for _, name := range tenants {
		t := new(tenant)
		r.tenants[name] = t
		crowd, pause := greedyClients, time.Duration(0)
		if isModest(name) {
			crowd, pause = 1, 400*time.Millisecond
		}
		for range crowd {
			clients.Go(func() {
				for time.Now().Before(end) && ctx.Err() == nil {
					if pause > 0 {
						time.Sleep(pause/2 + rand.N(pause))
					}
					a := answer{Came: time.Now()}
					status := r.send(ctx, web, "http://"+addrs[rand.IntN(len(addrs))]+r.path+"?tenant="+name, &a)
					r.mu.Lock()
					switch status {
					case http.StatusOK:
						t.served = append(t.served, a)
					case http.StatusTooManyRequests:
						t.refused++
					default:
						t.failed++
					}
					r.mu.Unlock()
					if status != http.StatusOK {
						time.Sleep(100 * time.Millisecond) // a client that minds Retry-After would wait longer
					}
				}
			})
		}
	}
	clients.Wait()
}

// send returns the status of the answer, or 0.
func (r *result) send(ctx context.Context, web *http.Client, url string, a *answer) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return 0
	}
	res, err := web.Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	came := a.Came
	if res.StatusCode == http.StatusOK && json.NewDecoder(res.Body).Decode(a) != nil {
		return 0
	}
	a.Came = came
	_, _ = io.Copy(io.Discard, res.Body) // so that the connection is used again
	return res.StatusCode
}

// passedBy is, for each request of a modest tenant, how many requests were let in between its
// sending and its own turn. Unlike the wait it does not depend on how busy the machine is.
func (r *result) passedBy() (all []int) {
	var began []time.Time
	for _, t := range r.tenants {
		for _, a := range t.served {
			began = append(began, a.From)
		}
	}
	slices.SortFunc(began, time.Time.Compare)
	place := func(at time.Time) int {
		i, _ := slices.BinarySearchFunc(began, at, time.Time.Compare)
		return i
	}
	for name, t := range r.tenants {
		for _, a := range t.served {
			if isModest(name) {
				all = append(all, place(a.From)-place(a.Came))
			}
		}
	}
	slices.Sort(all)
	return all
}

// most is the most requests of these tenants at one moment.
func (r *result) most(names ...string) (most int) {
	type edge struct {
		at    time.Time
		delta int
	}
	var edges []edge
	for _, name := range names {
		for _, a := range r.tenants[name].served {
			edges = append(edges, edge{a.From, 1}, edge{a.To, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.delta - b.delta
	})
	now := 0
	for _, e := range edges {
		now += e.delta
		most = max(most, now)
	}
	return most
}

// table is the phase as a whole.
func (r *result) table() string {
	var b strings.Builder
	sum := 0
	for _, t := range r.tenants {
		sum += len(t.served)
	}
	fmt.Fprintf(&b, "\n%s\n%-9s %7s  %7s  %7s  %5s\n", r.name, "tenant", "share", "median", "worst", "429s")
	for _, name := range tenants {
		t := r.tenants[name]
		waits := []time.Duration{0}
		for _, a := range t.served {
			waits = append(waits, a.From.Sub(a.Came).Round(time.Millisecond))
		}
		slices.Sort(waits)
		fmt.Fprintf(&b, "%-9s %5.1f %%  %7v  %7v  %5d\n", name, 100*float64(len(t.served))/float64(max(1, sum)), waits[len(waits)/2], waits[len(waits)-1], t.refused)
	}
	fmt.Fprintf(&b, "%d requests, at most %d at once.", sum, r.most(tenants...))
	if passed := r.passedBy(); len(passed) > 0 {
		fmt.Fprintf(&b, " Before a modest one %d came in, at most %d.", passed[len(passed)/2], passed[len(passed)-1])
	}
	return b.String()
}

const (
	// turns is how many turns a modest tenant may wait with fair shares: in one, as many
	// requests are let in as the total allows at once.
	turns = 2
	// enough is how many requests of modest tenants a phase needs for a verdict.
	enough = 20
)

func verdict(results []*result) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for i, r := range results {
		passed := r.passedBy()
		if len(passed) < enough && i > 0 || len(passed) == 0 {
			bad("%s: only %d requests of modest tenants were served", r.name, len(passed))
			continue
		}
		for name, t := range r.tenants {
			if t.failed > 0 {
				bad("%s: %d requests of %s failed", r.name, t.failed, name)
			}
			if i > 0 && isModest(name) && t.refused > 0 {
				bad("%s: %d requests of %s were refused", r.name, t.refused, name)
			}
		}
		if n := r.most(tenants...); n > r.total {
			bad("%s: %d requests were in flight at once; the total is %d", r.name, n, r.total)
		}
		if i == 0 { // one plain queue
			if n := passed[len(passed)/2]; n < 2*turns*total {
				bad("%s: %d requests passed a modest one; the greedy ones did not fill the queue", r.name, n)
			}
			continue
		}
		for _, name := range tenants {
			own := limit
			if name == "greedy-1" {
				own = r.limited
			}
			if n := r.most(name); n > own {
				bad("%s: %s had %d requests in flight at once; its limit is %d", r.name, name, n, own)
			}
		}
		if n := passed[len(passed)*9/10]; n > turns*r.total {
			bad("%s: up to %d requests passed a modest one; two turns are %d", r.name, n, turns*r.total)
		}
	}
	return problems
}
