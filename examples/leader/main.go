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
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/mutex"
)

func main() { demo.Main(run, map[string]demo.Role{"candidate": candidate}) }

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

// late is how much later than it was told a leader may say that it has stopped: the machine may
// be busy.
const late = leaseTTL / 4

func run(s *demo.Show) (problems demo.Problems) {
	names := []string{"A", "B", "C", "D"}
	s.Print("One leader in a fleet of %d processes.", len(names))
	s.Print("They use %s.", s.Server)
	s.Print("The lease lasts %v and is renewed while its holder lives.\n", leaseTTL)
	fleet := s.Fleet()
	processes := map[string]*demo.Process{}
	for _, name := range names {
		processes[name] = fleet.Start(name, "candidate")
	}
	// next waits for the next process that leads.
	next := func(from int) demo.Event {
		e := fleet.Await(demo.Event{Kind: leads, Index: from})
		s.Say("%s leads.", e.From)
		return e
	}
	const line = "%-10v  %-6v  %16v  %14v"
	table := []string{fmt.Sprintf(line, "the leader", "", "it stopped after", "without leader")}
	leader := next(0)
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
			processes[old.From].Cut()
		case "killed":
			processes[old.From].Kill()
		}
		if what != "killed" {
			stop := fleet.Await(demo.Event{From: old.From, Kind: stopped, Index: old.Index})
			gone = stop.At
			s.Say("%s has stopped: %s.", old.From, stop.Text)
		}
		leader = next(old.Index + 1)
		told, without := gone.Sub(began), leader.At.Sub(gone)
		table = append(table, fmt.Sprintf(line, what, old.From+" → "+leader.From, told.Round(100*time.Microsecond), without.Round(100*time.Microsecond)))
		problems.If(leader.From == old.From, "%s was %s and leads again: nobody took over", old.From, what)
		problems.If(what == "shut down" && without >= leaseTTL, "%s was shut down and did not hand over: no leader for %v", old.From, without)
		problems.If(what == "cut off" && told > 2*leaseTTL, "%s was cut off and told only after %v", old.From, told)
		processes[old.From].Mend() // a process that was cut off is a candidate again
	}
	time.Sleep(leaseTTL / 2)
	fleet.Stop()
	s.Print("\n%s", strings.Join(table, "\n"))
	problems = append(problems, overlaps(fleet.Events())...)
	if len(problems) == 0 {
		s.Print("\nNever two leaders at once, and each leader's token is above the one before.")
	}
	return problems
}

// overlaps goes through the terms in the order of time. A killed leader's term ended with its process.
func overlaps(events []demo.Event) (problems demo.Problems) {
	when := func(e demo.Event) time.Time {
		if e.Kind == leads {
			return e.At
		}
		return e.At.Add(-late)
	}
	slices.SortStableFunc(events, func(a, b demo.Event) int { return when(a).Compare(when(b)) })
	leader, token := "", uint64(0)
	for _, e := range events {
		switch {
		case e.Kind == leads:
			problems.If(leader != "", "%s led beside %s", e.From, leader)
			problems.If(e.Token <= token, "%s's token %d is not above %d", e.From, e.Token, token)
			leader, token = e.From, e.Token
		case e.From == leader:
			leader = ""
		}
	}
	return problems
}
