// Quickstart shows leasehold at work, in about ten seconds: worker processes
// share the caps of three tenants, one is killed in the middle, and then a lock
// holder that was paused for too long tries to write.
//
//	go run ./examples/quickstart
//
// It uses the Redis or Valkey at REDIS_URL, or an embedded server where that is
// not set. What it prints at the end is measured from what the processes report.
// It exits with 1 if a cap was exceeded or a stale write accepted, and also if
// that could not be tried.
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
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

var program = demo.Program{
	Name:  "quickstart",
	Limit: 60 * time.Second,
	Run:   run,
	Roles: map[string]demo.Role{"worker": worker, "writer": writer},
}

func main() { program.Main() }

// The workers outnumber every cap, so that somebody always waits: a cap that is never under
// pressure proves nothing.
const workers = 6

type tenant struct {
	name string
	cap  int
}

var tenants = []tenant{{"acme", 2}, {"globex", 4}, {"initech", 1}}

// capOf is the semaphore's LimitFor.
func capOf(name string) int {
	return tenants[slices.IndexFunc(tenants, func(t tenant) bool { return t.name == name })].cap
}

const (
	// permitTTL is how long a killed worker's permits stay taken, at most. The default of 30 s
	// suits real work better; here somebody is watching.
	permitTTL = 2 * time.Second
	lockTTL   = time.Second

	// The worker that is killed gets one job that is longer than the others', for the tenant
	// with one permit, and is killed in the middle of it. By then its lease has been renewed.
	victimTenant = "initech"
	victimJob    = 1200 * time.Millisecond
	killAt       = 800 * time.Millisecond
)

// run is the whole show.
func run(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
	out.Print("leasehold quickstart: %d worker processes", workers)
	out.Print("on %s", srv.Label)
	out.Print("Each worker runs one job after the other for each of %d tenants. A tenant's cap", len(tenants))
	out.Print("(in brackets) holds over all workers. The numbers are the workers at work.\n")
	results, err := caps(ctx, out, srv)
	if err != nil {
		return nil, err
	}
	stale, err := staleHolder(ctx, out, srv)
	if err != nil {
		return nil, err
	}
	out.Print("\n%s", table(results))
	problems := verdict(results, stale)
	if len(problems) == 0 {
		out.Print("No cap was exceeded. What the killed worker held was in use again %s", seconds(takeover(results)))
		out.Print("after the kill.")
		if stale.tried {
			out.Print("The stale holder's write was refused.")
		}
	}
	return problems, nil
}

// What a worker reports of a job, with its tenant in Text.
const (
	waits   = "waits"
	started = "started"     // Acquire has returned; Left is how long the job takes
	ended   = "ended a job" // Release has not yet been called
)

// worker is a worker process. An order makes its next job for the victim's tenant a long one.
func worker(ctx context.Context, c *demo.Child) error {
	caps, err := semaphore.New(c.Redis, semaphore.Config{Name: c.Run, Limit: 1, LimitFor: capOf, TTL: permitTTL})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, caps)
	// One loop for each tenant, so a worker that is killed while it holds a tenant's permit
	// leaves no dead waiter in that tenant's queue.
	loops, ctx := errgroup.WithContext(ctx)
	for _, t := range tenants {
		loops.Go(func() error {
			for ctx.Err() == nil {
				if err := job(ctx, c, caps, t.name); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	return loops.Wait()
}

// job runs one job of a tenant under its cap.
func job(ctx context.Context, c *demo.Child, caps *semaphore.Semaphore, tenant string) error {
	c.Report(demo.Event{Kind: waits, Text: tenant})
	err := caps.Do(ctx, tenant, func(ctx context.Context) error {
		takes := 60*time.Millisecond + rand.N(100*time.Millisecond)
		if tenant == victimTenant && len(c.Orders) > 0 {
			<-c.Orders
			takes = victimJob
		}
		c.Report(demo.Event{Kind: started, Text: tenant, Left: takes})
		select { // this stands for the job, which stops when its lease does
		case <-time.After(takes):
		case <-ctx.Done():
		}
		c.Report(demo.Event{Kind: ended, Text: tenant})
		return nil
	})
	// A lease is lost if the machine stalls for longer than it lasts. Its Context stopped the
	// job then, and the figures tell whether in time.
	if errors.Is(err, leasehold.ErrLost) {
		return nil
	}
	return err
}

// caps lets the workers work, kills one, and returns what was measured of each tenant.
func caps(ctx context.Context, out *demo.Output, srv *demo.Server) ([]result, error) {
	fleet := demo.NewFleet(srv, demo.RunName("quickstart"))
	defer fleet.Close()
	processes := map[string]*demo.Process{}
	for n := range workers {
		name := fmt.Sprint(n + 1)
		p, err := fleet.Start(demo.Spec{Name: name, Role: "worker"})
		if err != nil {
			return nil, err
		}
		processes[name] = p
	}
	watch := func(lasts time.Duration) {
		for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(lasts / 4) {
			out.Say("%s", atWork(fleet.Events()))
		}
	}
	watch(2 * time.Second)
	const victim = "3"
	if err := processes[victim].Send("longer"); err != nil {
		return nil, err
	}
	long, err := fleet.Await(ctx, "the long job", func(e demo.Event) bool { return e.From == victim && e.Kind == started && e.Left == victimJob })
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Until(long.At.Add(killAt)))
	kill := demo.Event{At: time.Now(), Kind: "killed", From: victim}
	processes[victim].Kill()
	out.Say("worker %s killed (SIGKILL), holding the permit of %s", victim, victimTenant)
	heir, err := fleet.Await(ctx, "a takeover", func(e demo.Event) bool {
		return e.Kind == started && e.Text == victimTenant && e.At.After(kill.At)
	})
	if err != nil {
		return nil, err
	}
	out.Say("%s: worker %s took over, %s after the kill", victimTenant, heir.From, seconds(heir.At.Sub(kill.At)))
	watch(2 * time.Second)
	if err := fleet.Stop(ctx); err != nil {
		return nil, err
	}
	return measure(fleet.Events(), kill), nil
}

// atWork is a line with the workers that hold permits of each tenant.
func atWork(events []demo.Event) string {
	var columns []string
	for _, t := range tenants {
		var busy []string
		for _, e := range events {
			switch {
			case e.Kind == started && e.Text == t.name:
				busy = append(busy, e.From)
			case e.Kind == ended && e.Text == t.name, e.Kind == demo.Ended:
				busy = slices.DeleteFunc(busy, func(from string) bool { return from == e.From })
			}
		}
		columns = append(columns, fmt.Sprintf("%s (%d): %-7s", t.name, t.cap, strings.Join(busy, " ")))
	}
	return strings.TrimSpace(strings.Join(columns, "   "))
}

// result is what was measured of one tenant.
type result struct {
	tenant
	most        int           // jobs at once, ever
	jobs        int           // done
	longestWait time.Duration // of those that saw its end
	takeover    time.Duration // of the killed worker's permit; 0: it held none, or nobody took over
}

// measure reads the results from what was reported. A killed worker's job ends with its process.
func measure(events []demo.Event, kill demo.Event) (results []result) {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b demo.Event) int {
		if c := a.At.Compare(b.At); c != 0 || a.From == b.From {
			return c
		}
		return strings.Compare(b.Kind, a.Kind) // "started" before "ended": in doubt they overlap
	})
	for _, t := range tenants {
		r := result{tenant: t}
		running, since := map[string]bool{}, map[string]time.Time{}
		held := false
		for _, e := range events {
			if e.Text != t.name && e.Kind != demo.Ended {
				continue
			}
			switch e.Kind {
			case waits:
				since[e.From] = e.At
			case started:
				r.longestWait = max(r.longestWait, e.At.Sub(since[e.From]))
				running[e.From] = true
				r.most = max(r.most, len(running))
				if held && r.takeover == 0 && e.At.After(kill.At) && len(running) == t.cap {
					r.takeover = e.At.Sub(kill.At)
				}
			case ended:
				r.jobs++
				delete(running, e.From)
			case demo.Ended:
				held = held || e.From == kill.From && running[e.From]
				delete(running, e.From)
			}
		}
		results = append(results, r)
	}
	return results
}

func takeover(results []result) (longest time.Duration) {
	for _, r := range results {
		longest = max(longest, r.takeover)
	}
	return longest
}

// What a writer reports.
const (
	locked   = "locked" // Token
	wrote    = "wrote"  // Text: accepted, refused, or an error
	accepted = "accepted"
	refused  = "refused"
	order    = "order-42"
)

// writer locks the order and writes it under the guard, and once more with the same token for
// each order of its parent.
func writer(ctx context.Context, c *demo.Child) error {
	locks, err := mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: lockTTL})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, locks)
	guard, err := mutex.NewGuard(c.Redis, mutex.GuardConfig{Name: c.Run})
	if err != nil {
		return err
	}
	lock, err := locks.Lock(ctx, order)
	if err != nil {
		return err
	}
	c.Report(demo.Event{Kind: locked, Token: lock.Token()})
	for {
		// Not under the lock's Context: this is the holder that has looked just before it was
		// paused, and is already on its way to the resource. No client can rule that out.
		err := guard.Set(ctx, order, lock.Token(), "written by "+c.Name, time.Minute)
		result := accepted
		switch {
		case errors.Is(err, leasehold.ErrFenced):
			result = refused
		case err != nil:
			result = err.Error()
		}
		c.Report(demo.Event{Kind: wrote, Text: result})
		select {
		case <-c.Orders:
		case <-ctx.Done():
			return nil
		}
	}
}

// stale is how the second part ended.
type stale struct {
	tried    bool
	old, new uint64 // tokens of the first holder and of the one after it
	result   string // of the first holder's late write
	value    string // what the guard holds after it
}

// staleHolder is the second part: A locks and writes, and is stopped past its lease; B locks and
// writes; A goes on where it was, which is in a write.
func staleHolder(ctx context.Context, out *demo.Output, srv *demo.Server) (s stale, err error) {
	out.Print("\nA stale lock holder: %s is locked for %v, renewed while its holder runs", order, lockTTL)
	if !demo.CanPause {
		out.Print("  left out: this system has no SIGSTOP to pause a process with")
		return s, nil
	}
	s.tried = true
	name := demo.RunName("quickstart")
	fleet := demo.NewFleet(srv, name)
	defer fleet.Close()
	lockAndWrite := func(who string) (p *demo.Process, token uint64, err error) {
		if p, err = fleet.Start(demo.Spec{Name: who, Role: "writer"}); err != nil {
			return nil, 0, err
		}
		lock, err := fleet.AwaitFrom(ctx, who, locked)
		if err != nil {
			return nil, 0, err
		}
		write, err := fleet.AwaitFrom(ctx, who, wrote)
		out.Say("%s locked with token %d, writes: %s", who, lock.Token, write.Text)
		return p, lock.Token, err
	}
	a, token, err := lockAndWrite("A")
	if err != nil {
		return s, err
	}
	s.old = token
	if err := a.Pause(); err != nil {
		return s, err
	}
	out.Say("A stopped (SIGSTOP), so that it cannot renew; B asks for the lock")
	if _, s.new, err = lockAndWrite("B"); err != nil {
		return s, err
	}
	known := len(fleet.Events())
	// The order lies in A's stdin when A wakes up: it writes at once.
	if err := errors.Join(a.Send("write"), a.Resume()); err != nil {
		return s, err
	}
	late, err := fleet.Await(ctx, "the late write", func(e demo.Event) bool { return e.Index >= known && e.From == "A" && e.Kind == wrote })
	if err != nil {
		return s, err
	}
	s.result = late.Text
	out.Say("A continued (SIGCONT), writes with token %d: %s", s.old, s.result)
	if s.value, err = guarded(ctx, srv, name); err != nil {
		return s, err
	}
	out.Say("the value is %q", s.value)
	return s, fleet.Stop(ctx)
}

func guarded(ctx context.Context, srv *demo.Server, name string) (string, error) {
	rdb, err := demo.Client(srv.URL)
	if err != nil {
		return "", err
	}
	defer rdb.Close()
	guard, err := mutex.NewGuard(rdb, mutex.GuardConfig{Name: name})
	if err != nil {
		return "", err
	}
	value, _, err := guard.Get(ctx, order)
	return value, err
}

// verdict lists what went against the promises, and what kept them from being tried.
func verdict(results []result, s stale) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, r := range results {
		if r.most > r.cap {
			bad("%s: the cap of %d was exceeded: %d jobs ran at once", r.name, r.cap, r.most)
		}
		if r.most < r.cap {
			bad("%s: never more than %d jobs at once, so its cap of %d was not tried", r.name, r.most, r.cap)
		}
		if r.name == victimTenant && r.takeover == 0 {
			bad("what the killed worker held was never taken over")
		}
	}
	if !s.tried {
		return problems
	}
	if s.result != refused {
		bad("the stale write, with token %d after %d, was not refused: %s", s.old, s.new, s.result)
	}
	if s.new <= s.old {
		bad("the second holder's token %d is not above the first one's %d", s.new, s.old)
	}
	if want := "written by B"; s.value != want {
		bad("the guarded value is %q; want %q", s.value, want)
	}
	return problems
}

// table is the figures at the end.
func table(results []result) string {
	var w strings.Builder
	const line = "%-8s  %3v  %12v  %9v  %12v\n"
	fmt.Fprintf(&w, line, "tenant", "cap", "most at once", "jobs done", "longest wait")
	for _, r := range results {
		fmt.Fprintf(&w, line, r.name, r.cap, r.most, r.jobs, seconds(r.longestWait))
	}
	return w.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
