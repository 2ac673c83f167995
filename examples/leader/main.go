// Leader shows one leader in a fleet of processes. The leader is shut down, the
// next one is cut off from Redis, and the one after that is killed. Each time
// another process takes over, and never do two lead at once.
//
//	go run ./examples/leader
//
// It uses the Redis or Valkey at REDIS_URL, or an embedded server where that is
// not set. It exits with 1 if two processes led at once, if a leader was not told
// of its end, or if nobody took over.
package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/mutex"
)

var program = demo.Program{
	Name:  "leader",
	Limit: 45 * time.Second,
	Run:   run,
	Roles: map[string]demo.Role{"candidate": candidate},
}

func main() { program.Main() }

// leaseTTL bounds how long the fleet has no leader after a crash. It is short
// because somebody is watching.
const leaseTTL = time.Second

// What a candidate reports.
const (
	leads   = "leads"   // Token
	stopped = "stopped" // Text says why it does not lead any more
)

// candidate leads each time that it is its turn, until it is asked to end.
func candidate(ctx context.Context, c *demo.Child) error {
	locks := demo.Must(mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: leaseTTL}))
	defer demo.Close(ctx, locks)
	err := locks.Lead(ctx, "leader", func(ctx context.Context, token uint64) error {
		c.Report(demo.Event{Kind: leads, Token: token})
		<-ctx.Done() // here a real leader works, under this ctx
		why := "it was asked to end"
		if errors.Is(context.Cause(ctx), leasehold.ErrLost) {
			why = "its lease was lost"
		}
		// First the work ends. Then Lead gives the lock back, and the next leader begins.
		c.Report(demo.Event{Kind: stopped, Text: why})
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// end is how a leader's term was ended from outside.
type end struct {
	what      string // shut down, cut off or killed
	old, next string
	told      time.Duration // from then until the old leader had stopped; killed: 0
	without   time.Duration // no leader for so long
}

func run(s *demo.Show) demo.Problems {
	names := []string{"A", "B", "C", "D"}
	s.Print("One leader in a fleet of %d processes.", len(names))
	s.Print("They use %s.", s.Server.Label)
	s.Print("The lease lasts %v and is renewed while its holder lives.\n", leaseTTL)
	fleet := s.Fleet()
	processes, links := map[string]*demo.Process{}, map[string]*demo.Link{}
	for _, name := range names {
		links[name] = s.Link()
		processes[name] = fleet.Start(demo.Spec{Name: name, Role: "candidate", Link: links[name]})
	}
	// next waits for the next process that leads.
	next := func(from int) demo.Event {
		e := fleet.Await(demo.Event{Kind: leads, Index: from})
		s.Say("%s leads.", e.From)
		return e
	}
	leader := next(0)
	o := outcome{}
	for _, what := range []string{"shut down", "cut off", "killed"} {
		time.Sleep(leaseTTL / 2) // so that the lease that ends is one that was renewed
		old := leader
		s.Say("%s is %s.", old.From, what)
		began := time.Now()
		gone := began
		switch what {
		case "shut down":
			processes[old.From].Stop()
		case "cut off":
			links[old.From].Cut()
		case "killed":
			processes[old.From].Kill()
		}
		if what != "killed" {
			stop := fleet.Await(demo.Event{From: old.From, Kind: stopped, Index: old.Index})
			gone = stop.At
			s.Say("%s has stopped: %s.", old.From, stop.Text)
		}
		leader = next(old.Index + 1)
		o.ends = append(o.ends, end{what, old.From, leader.From, gone.Sub(began), leader.At.Sub(gone)})
		links[old.From].Mend() // a process that was cut off is a candidate again
	}
	time.Sleep(leaseTTL / 2)
	fleet.Stop()
	const line = "%-10v  %-6v  %16v  %14v"
	s.Print("\n"+line, "the leader", "", "it stopped after", "without leader")
	for _, e := range o.ends {
		s.Print(line, e.what, e.old+" → "+e.next, e.told.Round(100*time.Microsecond), e.without.Round(100*time.Microsecond))
	}
	o.terms = termsOf(fleet.Events())
	problems := verdict(&o)
	if len(problems) == 0 {
		s.Print("\nNever two leaders at once, and each leader's token is above the one before.")
	}
	return problems
}

// outcome is what was seen.
type outcome struct {
	terms []term
	ends  []end
}

// term is a stretch of time in which a process led.
type term struct {
	leader     string
	token      uint64
	start, end time.Time
}

// termsOf reads the terms from what was reported, in the order of their starts.
// A killed leader's term ended with its process.
func termsOf(events []demo.Event) (terms []term) {
	open := map[string]int{}
	for _, e := range events {
		switch e.Kind {
		case leads:
			open[e.From] = len(terms)
			terms = append(terms, term{leader: e.From, token: e.Token, start: e.At})
		case stopped, demo.Ended:
			if i, ok := open[e.From]; ok {
				terms[i].end = e.At
				delete(open, e.From)
			}
		}
	}
	slices.SortFunc(terms, func(a, b term) int { return a.start.Compare(b.start) })
	return terms
}

// late is how much later than it was told a leader may say that it has stopped: the machine may
// be busy.
const late = leaseTTL / 4

func verdict(o *outcome) (problems demo.Problems) {
	for i, t := range o.terms {
		problems.If(t.end.IsZero(), "%s's term has no end", t.leader)
		if i == 0 {
			continue
		}
		before := o.terms[i-1]
		both := before.end.Sub(t.start)
		problems.If(both > late, "%s and %s led at once, for %v", before.leader, t.leader, both)
		problems.If(t.token <= before.token, "%s's token %d is not above %s's %d", t.leader, t.token, before.leader, before.token)
	}
	problems.If(len(o.ends) != 3, "%d of 3 leaders were ended", len(o.ends))
	for _, e := range o.ends {
		problems.If(e.next == e.old, "%s was %s and leads again: nobody took over", e.old, e.what)
		problems.If(e.what == "shut down" && e.without >= leaseTTL, "%s was shut down and did not hand over: no leader for %v", e.old, e.without)
		problems.If(e.what == "cut off" && e.told > 2*leaseTTL, "%s was cut off and told only after %v", e.old, e.told)
	}
	return problems
}
