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
	locks, err := mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: leaseTTL})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, locks)
	err = locks.Lead(ctx, "leader", func(ctx context.Context, token uint64) error {
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

func run(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
	names := []string{"A", "B", "C", "D"}
	out.Print("One leader in a fleet of %d processes.", len(names))
	out.Print("They use %s.", srv.Label)
	out.Print("The lease lasts %v and is renewed while its holder lives.\n", leaseTTL)
	fleet := demo.NewFleet(srv, demo.RunName("leader"))
	defer fleet.Close()
	processes, links := map[string]*demo.Process{}, map[string]*demo.Link{}
	for _, name := range names {
		link, err := demo.NewLink(srv)
		if err != nil {
			return nil, err
		}
		defer link.Close()
		links[name] = link
		if processes[name], err = fleet.Start(demo.Spec{Name: name, Role: "candidate", Link: link}); err != nil {
			return nil, err
		}
	}
	// next waits for the next process that leads.
	next := func(after int) (demo.Event, error) {
		e, err := fleet.Await(ctx, "a new leader", func(e demo.Event) bool { return e.Index > after && e.Kind == leads })
		if err == nil {
			out.Say("%s leads.", e.From)
		}
		return e, err
	}
	leader, err := next(-1)
	if err != nil {
		return nil, err
	}
	var ends []end
	for _, what := range []string{"shut down", "cut off", "killed"} {
		time.Sleep(leaseTTL) // so that the lease that ends is one that was renewed
		old := leader
		out.Say("%s is %s.", old.From, what)
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
			stop, err := fleet.Await(ctx, "the end of "+old.From+"'s term", func(e demo.Event) bool {
				return e.Index > old.Index && e.From == old.From && e.Kind == stopped
			})
			if err != nil {
				return nil, err
			}
			gone = stop.At
			out.Say("%s has stopped: %s.", old.From, stop.Text)
		}
		if leader, err = next(old.Index); err != nil {
			return nil, err
		}
		ends = append(ends, end{what, old.From, leader.From, gone.Sub(began), leader.At.Sub(gone)})
		links[old.From].Mend() // a process that was cut off is a candidate again
	}
	time.Sleep(leaseTTL / 2)
	if err := fleet.Stop(ctx); err != nil {
		return nil, err
	}
	const line = "%-10v  %-6v  %16v  %14v"
	out.Print("\n"+line, "the leader", "", "it stopped after", "without leader")
	for _, e := range ends {
		out.Print(line, e.what, e.old+" → "+e.next, e.told.Round(100*time.Microsecond), e.without.Round(100*time.Microsecond))
	}
	problems := verdict(termsOf(fleet.Events()), ends)
	if len(problems) == 0 {
		out.Print("\nNever two leaders at once, and each leader's token is above the one before.")
	}
	return problems, nil
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

func verdict(terms []term, ends []end) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for i, t := range terms {
		if t.end.IsZero() {
			bad("%s's term has no end", t.leader)
		}
		if i == 0 {
			continue
		}
		before := terms[i-1]
		if both := before.end.Sub(t.start); both > late {
			bad("%s and %s led at once, for %v", before.leader, t.leader, both)
		}
		if t.token <= before.token {
			bad("%s's token %d is not above %s's %d", t.leader, t.token, before.leader, before.token)
		}
	}
	if want := 3; len(ends) != want {
		bad("%d of %d leaders were ended", len(ends), want)
	}
	for _, e := range ends {
		switch {
		case e.next == e.old:
			bad("%s was %s and leads again: nobody took over", e.old, e.what)
		case e.what == "shut down" && e.without >= leaseTTL:
			bad("%s was shut down and did not hand over: no leader for %v", e.old, e.without)
		case e.what == "cut off" && e.told > 2*leaseTTL:
			bad("%s was cut off and told only after %v", e.old, e.told)
		}
	}
	return problems
}
