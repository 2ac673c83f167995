// Extend shows two ways to keep a lease through work of several steps: the
// automatic renewal alone, and an explicit Extend before each step for as long
// as that step may take. Redis is away for a while in a long step, and then both
// kinds of holder are killed.
//
//	go run ./examples/extend
//
// It uses the Redis or Valkey at REDIS_URL, or an embedded server where that is
// not set. It exits with 1 if a lease ended otherwise than it should have.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/mutex"
)

var program = demo.Program{
	Name:  "extend",
	Limit: 45 * time.Second,
	Run:   run,
	Roles: map[string]demo.Role{"worker": worker, "heir": heir},
}

func main() { program.Main() }

// leaseTTL is short because somebody is watching; the default is 30 s.
const leaseTTL = 2 * time.Second

// step is a part of the job.
type step struct {
	takes  time.Duration
	extend time.Duration // how long the lease must last for it, with a reserve
}

var steps = []step{
	{takes: 200 * time.Millisecond, extend: 2 * time.Second},
	{takes: 3500 * time.Millisecond, extend: 5 * time.Second},
	{takes: 200 * time.Millisecond, extend: 2 * time.Second},
}

// Both disturbances come in the long step.
const (
	awayAt  = 300 * time.Millisecond  // into that step
	awayFor = 2500 * time.Millisecond // longer than the TTL, shorter than what Extend asked for
	killAt  = 800 * time.Millisecond
)

// What the processes report.
const (
	began  = "began"  // Number is the step, from 1
	sample = "sample" // Left is what is left of the lease
	lost   = "lost"   // the lease's Context has ended: the job stops
	done   = "done"   // all steps
	locked = "locked" // the heir has the lock
)

const (
	modeRenew  = "renew"
	modeExtend = "extend"
)

// worker runs the job under the lock of a key.
func worker(ctx context.Context, c *demo.Child) error {
	key, mode := c.Args[0], c.Args[1]
	locks := demo.Must(mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: leaseTTL}))
	defer demo.Close(ctx, locks)
	lock := demo.Must(locks.Lock(ctx, key))
	for i, s := range steps {
		if mode == modeExtend {
			// The renewals go on beside it, and never shorten what Extend set.
			demo.Check(lock.Extend(ctx, s.extend))
		}
		c.Report(demo.Event{Kind: began, Number: i + 1})
		if !work(c, lock, s.takes) {
			c.Report(demo.Event{Kind: lost, Number: i + 1})
			return nil
		}
	}
	c.Report(demo.Event{Kind: done})
	return lock.Unlock()
}

// work stands for a step. It stops when the lease is lost.
func work(c *demo.Child, lock *mutex.Lock, takes time.Duration) bool {
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for end := time.After(takes); ; {
		c.Report(demo.Event{Kind: sample, Left: time.Until(lock.Deadline())})
		select {
		case <-lock.Context().Done():
			return false
		case <-end:
			return true
		case <-ticks.C:
		}
	}
}

// heir waits for the lock of a key, and reports when it has it.
func heir(ctx context.Context, c *demo.Child) error {
	locks := demo.Must(mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: leaseTTL}))
	defer demo.Close(ctx, locks)
	return locks.Do(ctx, c.Args[0], func(context.Context, uint64) error {
		c.Report(demo.Event{Kind: locked})
		return nil
	})
}

// record is what became of one worker.
type record struct {
	name, mode string
	killed     bool // else Redis was away

	lost, done bool
	lostAfter  time.Duration // from the start of the outage
	left       time.Duration // of the killed worker's lease, when it died
	waited     time.Duration // from then until the next process had the lock
}

func (r *record) key() string  { return "job-" + r.name }
func (r *record) heir() string { return r.name + "'s heir" }

func run(s *demo.Show) demo.Problems {
	s.Print("A job of %d steps under a lease of %v, on", len(steps), leaseTTL)
	s.Print("%s.", s.Server.Label)
	s.Print("Four processes run it at once, each with a key of its own, for some seconds.")
	s.Print("For two of them Redis is away for %v, and two are killed.\n", awayFor)
	fleet := s.Fleet()
	link := s.Link() // of the two for which Redis will be away
	records := []*record{
		{name: "A", mode: modeRenew},
		{name: "B", mode: modeExtend},
		{name: "C", mode: modeRenew, killed: true},
		{name: "D", mode: modeExtend, killed: true},
	}
	workers := map[string]*demo.Process{}
	for _, r := range records {
		spec := demo.Spec{Name: r.name, Role: "worker", Args: []string{r.key(), r.mode}}
		if !r.killed {
			spec.Link = link
		}
		workers[r.name] = fleet.Start(spec)
	}
	var long time.Time // when the last of them began its long step
	for _, r := range records {
		if e := fleet.Await(demo.Event{From: r.name, Kind: began, Number: 2}); e.At.After(long) {
			long = e.At
		}
		if r.killed {
			fleet.Start(demo.Spec{Name: r.heir(), Role: "heir", Args: []string{r.key()}})
		}
	}
	time.Sleep(time.Until(long.Add(awayAt)))
	cut := time.Now()
	link.Cut()
	time.Sleep(time.Until(long.Add(killAt)))
	killed := map[string]time.Time{}
	for _, r := range records {
		if r.killed {
			killed[r.name] = time.Now()
			workers[r.name].Kill()
		}
	}
	time.Sleep(time.Until(cut.Add(awayFor)))
	link.Mend()
	for _, r := range records {
		if r.killed {
			r.waited = fleet.Await(demo.Event{From: r.heir(), Kind: locked}).At.Sub(killed[r.name])
		} else {
			fleet.Await(demo.Event{From: r.name, Kind: demo.Ended})
		}
		for _, e := range fleet.Events() {
			switch {
			case e.From != r.name:
			case e.Kind == lost:
				r.lost, r.lostAfter = true, e.At.Sub(cut)
			case e.Kind == done:
				r.done = true
			case e.Kind == sample && r.killed: // the last one counts
				r.left = e.Left - killed[r.name].Sub(e.At)
			}
		}
		s.Print("%s", r.outcome())
	}
	problems := verdict(records)
	if len(problems) == 0 {
		s.Print("\nThe renewal alone frees a dead process's lease soon, and loses the lease when")
		s.Print("Redis is away for longer than the TTL. Extend survives that, and its price is")
		s.Print("that a dead process's lease stays taken for as long as it was extended.")
	}
	return problems
}

func (r *record) outcome() string {
	how := map[string]string{modeRenew: "renewed ", modeExtend: "extended"}[r.mode]
	switch {
	case r.killed:
		return fmt.Sprintf("%s, %s: killed; the next process had the lock %.1f s later.", r.name, how, r.waited.Seconds())
	case r.lost:
		return fmt.Sprintf("%s, %s: told %.1f s into the outage that its lease was lost, and stopped.", r.name, how, r.lostAfter.Seconds())
	default:
		return fmt.Sprintf("%s, %s: kept its lease and did all of its steps.", r.name, how)
	}
}

// patience is how much later than at the lease's end the next process may have
// the lock: the margin of the holder's belief, and a machine that is busy.
const patience = 1500 * time.Millisecond

func verdict(runs []*record) (problems demo.Problems) {
	for _, r := range runs {
		if r.killed {
			problems.If(r.waited < r.left || r.waited > r.left+patience,
				"%s's lease had %v left when it was killed, and another process had the lock after %v", r.name, r.left, r.waited)
			problems.If((r.left > leaseTTL) != (r.mode == modeExtend),
				"%s's lease had %v left when it was killed, with a TTL of %v", r.name, r.left, leaseTTL)
			continue
		}
		problems.If(r.mode == modeRenew && (r.done || !r.lost),
			"%s was not told that its lease was lost, though Redis was away for %v", r.name, awayFor)
		problems.If(r.mode == modeExtend && (!r.done || r.lost),
			"%s lost its lease, though it was extended beyond the time that Redis was away", r.name)
	}
	return problems
}
