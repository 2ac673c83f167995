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
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/semaphore"
)

func main() { demo.Main(run, map[string]demo.Role{"service": service}) }

const (
	limit     = 4 // of a tenant, as the processes are configured
	total     = 8 // of all
	processes = 3 // of the service
	maxWait   = 10 * time.Second
	enough    = 20 // requests of modest tenants for a verdict
)

// fairShares is the caps that the service's processes use, and the operator.
func fairShares(run string) semaphore.Config {
	return semaphore.Config{
		Name: run + "-fair", Limit: limit, Total: total, TTL: 10 * time.Second,
		MaxWaiters: 500, MaxWaitersTotal: 2000,
	}
}

// answer is what the service answers: when the request came, when it began to work on it, and when it ended.
type answer struct{ Came, From, To time.Time }

type came struct{} // the key of the time when a request came, in its ctx

// service is one process of the service. Behind /fair the tenants have their caps; behind /fifo
// one queue serves all. A request waits for its turn as long as maxWait; then it is answered
// with 429 and Retry-After.
func service(ctx context.Context, c *demo.Child) error {
	work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		time.Sleep(40*time.Millisecond + rand.N(40*time.Millisecond))
		_ = json.NewEncoder(w).Encode(answer{Came: r.Context().Value(came{}).(time.Time), From: began, To: time.Now()})
	})
	mux := http.NewServeMux()
	for path, config := range map[string]semaphore.Config{
		"/fair": fairShares(c.Run),
		"/fifo": {Name: c.Run + "-fifo", Limit: total, TTL: 10 * time.Second},
	} {
		caps := demo.Must(semaphore.New(c.Redis, config))
		defer demo.Close(ctx, caps)
		capped := demo.Must(httpcap.New(caps, httpcap.Config{Key: func(r *http.Request) string { return r.FormValue("tenant") }, Wait: maxWait}))(work)
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			capped.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), came{}, time.Now())))
		})
	}
	listener := demo.Must(net.Listen("tcp", "127.0.0.1:0"))
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = web.Close() })
	c.Report(demo.Event{Kind: "listens", Text: "http://" + listener.Addr().String()})
	if err := web.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

// phase is a part of the show, and what was seen of it.
type phase struct {
	name, path string
	lasts      time.Duration
	total      int
	limited    int // the limit of greedy-1
	tenants    map[string]*tenant
}

// tenant is what was seen of one.
type tenant struct {
	mu              sync.Mutex
	served          []answer
	refused, failed int
}

// run shows one plain queue, then fair shares, then limits that change.
func run(s *demo.Show) demo.Problems {
	s.Print("Two greedy tenants and eight modest ones, %d processes of the service.", processes)
	s.Print("They use %s.\nAt most %d requests in flight of a tenant, %d of all.\n", s.Server, limit, total)
	fleet := s.Fleet()
	var urls []string
	for i := range processes {
		who := string(rune('A' + i))
		fleet.Start(who, "service")
		urls = append(urls, fleet.Await(demo.Event{From: who, Kind: "listens"}).Text)
	}
	caps := demo.Must(semaphore.New(s.Redis, fairShares(fleet.Run))) // an operator's, to set limits
	defer demo.Close(s.Ctx, caps)
	defer func() { // they have no expiry: 0 removes them, also after a Ctrl-C
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Ctx), 3*time.Second)
		defer cancel()
		demo.Check(caps.SetTotal(ctx, 0), caps.SetLimit(ctx, "greedy-1", 0))
	}()
	phases := []*phase{
		{name: "one plain queue", path: "/fifo?tenant=all&for=", lasts: 5 * time.Second, total: total, limited: limit},
		{name: "fair shares", path: "/fair?tenant=", lasts: 5 * time.Second, total: total, limited: limit},
		{name: "fair shares, total 16", path: "/fair?tenant=", lasts: 3 * time.Second, total: 16, limited: limit},
		{name: "fair shares, greedy-1 at most 2", path: "/fair?tenant=", lasts: 3 * time.Second, total: 16, limited: 2},
	}
	for _, p := range phases {
		s.Say("%s", p.name)
		demo.Check(caps.SetTotal(s.Ctx, p.total), caps.SetLimit(s.Ctx, "greedy-1", p.limited))
		p.load(s.Ctx, urls)
	}
	fleet.Stop()
	for _, p := range phases {
		p.print(s)
	}
	problems := verdict(phases)
	if len(problems) == 0 {
		s.Print("\nNo limit was passed, and fair shares let every modest tenant in at its turn.")
	}
	return problems
}

var tenants = []string{
	"greedy-1", "greedy-2",
	"modest-1", "modest-2", "modest-3", "modest-4", "modest-5", "modest-6", "modest-7", "modest-8",
}

func isModest(tenant string) bool { return tenant[0] == 'm' }

// load sends the requests of all tenants, and returns when all are answered.
func (p *phase) load(ctx context.Context, urls []string) {
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer web.CloseIdleConnections()
	var clients sync.WaitGroup
	end := time.Now().Add(p.lasts)
	var modest atomic.Int64 // requests of modest tenants that were served
	more := func() bool {   // a busy machine takes longer until there are enough for a verdict
		left := time.Until(end)
		return ctx.Err() == nil && (left > 0 || left > -20*time.Second && modest.Load() < enough)
	}
	p.tenants = map[string]*tenant{}
	for _, name := range tenants {
		t := new(tenant)
		p.tenants[name] = t
		crowd, pause := 60, time.Duration(0) // a greedy tenant has so many requests under way all the time
		if isModest(name) {
			crowd, pause = 1, 400*time.Millisecond
		}
		for range crowd {
			clients.Go(func() {
				for more() {
					if pause > 0 {
						time.Sleep(pause/2 + rand.N(pause))
					}
					if !t.send(web, urls[rand.IntN(len(urls))]+p.path+name) {
						time.Sleep(100 * time.Millisecond) // a client that minds Retry-After would wait longer
					} else if pause > 0 {
						modest.Add(1)
					}
				}
			})
		}
	}
	clients.Wait()
}

// send sends a request, and reports whether it was served.
func (t *tenant) send(web *http.Client, url string) bool {
	res, err := web.Post(url, "", nil)
	var a answer
	status := 0
	if err == nil {
		_ = json.NewDecoder(res.Body).Decode(&a) // a refusal has none of its fields
		_, _ = io.Copy(io.Discard, res.Body)     // so that the connection is used again
		_ = res.Body.Close()
		status = res.StatusCode
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch status {
	case http.StatusOK:
		t.served = append(t.served, a)
	case http.StatusTooManyRequests:
		t.refused++
	default:
		t.failed++
	}
	return status == http.StatusOK
}

// passedBy is, for each request of a modest tenant, how many requests were let in between its
// coming and its own turn. Unlike the wait it does not depend on how busy the machine is.
func (p *phase) passedBy() (all []int) {
	for name, t := range p.tenants {
		for _, a := range t.served {
			if isModest(name) {
				all = append(all, p.count(tenants, func(b answer) bool { return !b.From.Before(a.Came) && b.From.Before(a.From) }))
			}
		}
	}
	slices.Sort(all)
	return all
}

func (p *phase) count(names []string, is func(answer) bool) (n int) {
	for _, name := range names {
		for _, a := range p.tenants[name].served {
			if is(a) {
				n++
			}
		}
	}
	return n
}

// most is the most requests of these tenants at one moment, which is one when a request began.
func (p *phase) most(names ...string) (most int) {
	for _, name := range names {
		for _, a := range p.tenants[name].served {
			most = max(most, p.count(names, func(b answer) bool { return !b.From.After(a.From) && b.To.After(a.From) }))
		}
	}
	return most
}

// print prints the phase as a whole.
func (p *phase) print(s *demo.Show) {
	sum := 0
	for _, t := range p.tenants {
		sum += len(t.served)
	}
	s.Print("\n%s\n%-9s %7s  %7s  %7s  %5s", p.name, "tenant", "share", "median", "worst", "429s")
	for _, name := range tenants {
		t := p.tenants[name]
		waits := []time.Duration{0}
		for _, a := range t.served {
			waits = append(waits, a.From.Sub(a.Came).Round(time.Millisecond))
		}
		slices.Sort(waits)
		s.Print("%-9s %5.1f %%  %7v  %7v  %5d", name, 100*float64(len(t.served))/float64(max(1, sum)), waits[len(waits)/2], waits[len(waits)-1], t.refused)
	}
	s.Print("%d requests, at most %d at once.", sum, p.most(tenants...))
	if passed := p.passedBy(); len(passed) > 0 {
		s.Print("Before a modest one %d came in, at most %d.", passed[len(passed)/2], passed[len(passed)-1])
	}
}

func verdict(phases []*phase) (problems demo.Problems) {
	for i, p := range phases {
		bad := func(wrong bool, format string, args ...any) { problems.If(wrong, p.name+": "+format, args...) }
		passed, fair := p.passedBy(), i > 0
		if len(passed) == 0 || fair && len(passed) < enough {
			bad(true, "only %d requests of modest tenants were served", len(passed))
			continue
		}
		n := p.most(tenants...)
		bad(n > p.total, "%d requests were in flight at once; the total is %d", n, p.total)
		for name, t := range p.tenants {
			own, n := limit, p.most(name)
			if name == "greedy-1" {
				own = p.limited
			}
			bad(t.failed > 0, "%d requests of %s failed", t.failed, name)
			bad(fair && isModest(name) && t.refused > 0, "%d requests of %s were refused", t.refused, name)
			bad(fair && n > own, "%s had %d requests in flight at once; its limit is %d", name, n, own)
		}
		middle, late := passed[len(passed)/2], passed[len(passed)*9/10]
		bad(!fair && middle < 4*total, "%d requests passed a modest one; the greedy ones did not fill the queue", middle)
		bad(fair && late > 2*p.total, "up to %d requests passed a modest one; two turns are %d", late, 2*p.total)
	}
	return problems
}
