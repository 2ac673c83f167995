// Quickstart shows leasehold at work, in about seven seconds: worker processes
// share the caps of three tenants, and one is killed in the middle.
//
//	go run ./examples/quickstart
//
// It uses the Redis or Valkey at REDIS_URL, or an embedded server where that is
// not set. What it prints at the end is measured from what the processes report.
// It exits with 1 if a cap was exceeded, and also if that could not be tried.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/semaphore"
)

func main() { demo.Main(run, map[string]demo.Role{"worker": worker}) }

// The workers outnumber every cap, so that somebody always waits: a cap that is never under
// pressure proves nothing.
const workers = 6

var tenants = []string{"acme", "globex", "initech"}

func capOf(tenant string) int { return map[string]int{"acme": 2, "globex": 4, "initech": 1}[tenant] }

const (
	// permitTTL is how long a killed worker's permits stay taken, at most. The default of 30 s
	// suits real work better; here somebody is watching.
	permitTTL = 2 * time.Second

	// A worker is killed in the middle of a job that is longer than the others', for the
	// tenant with one permit. By then its lease has been renewed.
	victim, victimTenant = "3", "initech"
	victimJob, killAt    = 1200 * time.Millisecond, 800 * time.Millisecond
)

// What a process reports, with its tenant in Text.
const (
	waits   = "waits"
	started = "started"     // Acquire has returned; Left is how long the job takes
	ended   = "ended a job" // Release has not yet been called
)

// worker runs one job after the other for each tenant. An order makes its next job for the
// victim's tenant a long one.
func worker(ctx context.Context, c *demo.Child) error {
	caps := demo.Must(semaphore.New(c.Redis, semaphore.Config{Name: c.Run, Limit: 1, LimitFor: capOf, TTL: permitTTL}))
	defer demo.Close(ctx, caps)
	loops, ctx := errgroup.WithContext(ctx)
	for _, tenant := range tenants {
		loops.Go(func() error {
			for ctx.Err() == nil {
				c.Report(demo.Event{Kind: waits, Text: tenant})
				err := caps.Do(ctx, tenant, func(ctx context.Context) error { return job(ctx, c, tenant) })
				// A lease is lost if the machine stalls for longer than it lasts. Its ctx
				// stopped the job then, and the figures tell whether in time.
				if err != nil && ctx.Err() == nil && !errors.Is(err, leasehold.ErrLost) {
					return err
				}
			}
			return nil
		})
	}
	return loops.Wait()
}

// job stands for the work of a tenant. It stops when its lease does.
func job(ctx context.Context, c *demo.Child, tenant string) error {
	takes := 60*time.Millisecond + rand.N(100*time.Millisecond)
	if tenant == victimTenant && len(c.Orders) > 0 {
		<-c.Orders
		takes = victimJob
	}
	c.Report(demo.Event{Kind: started, Text: tenant, Left: takes})
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	c.Report(demo.Event{Kind: ended, Text: tenant})
	return nil
}

func run(s *demo.Show) (problems demo.Problems) {
	s.Print("leasehold quickstart: %d worker processes\non %s", workers, s.Server)
	s.Print("Each worker runs one job after the other for each of %d tenants. A tenant's cap", len(tenants))
	s.Print("(in brackets) holds over all workers. The numbers are the workers at work.\n")
	all, takeover := caps(s)
	const line = "%-8s  %3v  %12v  %9v  %12v"
	s.Print("\n"+line, "tenant", "cap", "most at once", "jobs done", "longest wait")
	for i, r := range all {
		name, limit := tenants[i], capOf(tenants[i])
		s.Print(line, name, limit, r.most, r.jobs, r.longestWait.Round(10*time.Millisecond))
		problems.If(r.most > limit, "%s: the cap of %d was exceeded: %d jobs ran at once", name, limit, r.most)
		problems.If(r.most < limit, "%s: never more than %d jobs at once, so its cap of %d was not tried", name, r.most, limit)
	}
	if len(problems) == 0 {
		s.Print("\nNo cap was exceeded. What the killed worker held was in use again %v\nafter the kill.", takeover.Round(10*time.Millisecond))
	}
	return problems
}

// caps lets the workers work, kills one, and returns what was measured of each tenant, and how
// long after the kill the permit was in use again.
func caps(s *demo.Show) (results []result, takeover time.Duration) {
	fleet := s.Fleet()
	processes := map[string]*demo.Process{}
	for n := range workers {
		name := fmt.Sprint(n + 1)
		processes[name] = fleet.Start(name, "worker")
	}
	watch := func() {
		for range 4 {
			var columns []string
			for _, t := range tenants {
				columns = append(columns, fmt.Sprintf("%s (%d): %-7s", t, capOf(t), strings.Join(measure(fleet.Events(), t).busy, " ")))
			}
			s.Say("%s", strings.TrimSpace(strings.Join(columns, "   ")))
			time.Sleep(500 * time.Millisecond)
		}
	}
	watch()
	processes[victim].Send("longer")
	long := fleet.Await(demo.Event{From: victim, Kind: started, Left: victimJob})
	time.Sleep(time.Until(long.At.Add(killAt)))
	killed := time.Now()
	processes[victim].Kill()
	s.Say("worker %s killed (SIGKILL), holding the permit of %s", victim, victimTenant)
	heir := fleet.Await(demo.Event{Kind: started, Text: victimTenant, At: killed})
	takeover = heir.At.Sub(killed)
	s.Say("%s: worker %s took over, %.2f s after the kill", victimTenant, heir.From, takeover.Seconds())
	watch()
	fleet.Stop()
	for _, t := range tenants {
		results = append(results, measure(fleet.Events(), t))
	}
	return results, takeover
}

// result is what was measured of one tenant.
type result struct {
	busy        []string      // the workers at work
	most        int           // jobs at once, ever
	jobs        int           // done
	longestWait time.Duration // of those that saw its end
}

// measure reads a tenant's result from what was reported. A killed worker's job ends with its
// process.
func measure(events []demo.Event, tenant string) (r result) {
	slices.SortStableFunc(events, func(a, b demo.Event) int {
		if c := a.At.Compare(b.At); c != 0 || a.From == b.From {
			return c
		}
		return strings.Compare(b.Kind, a.Kind) // "started" before "ended": in doubt they overlap
	})
	since := map[string]time.Time{}
	for _, e := range events {
		isTenant := e.Text == tenant
		switch {
		case isTenant && e.Kind == waits:
			since[e.From] = e.At
		case isTenant && e.Kind == started:
			r.longestWait = max(r.longestWait, e.At.Sub(since[e.From]))
			r.busy = append(r.busy, e.From)
			r.most = max(r.most, len(r.busy))
		case isTenant && e.Kind == ended, e.Kind == demo.Ended:
			r.jobs += strings.Count(e.Kind, ended)
			r.busy = slices.DeleteFunc(r.busy, func(from string) bool { return from == e.From })
		}
	}
	return r
}
