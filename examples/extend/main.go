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
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/mutex"
)

func main() { demo.Main(run, map[string]demo.Role{"worker": worker, "heir": heir}) }

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
	defer lock.Unlock() // also after it was lost
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

// patience is how much later than at the lease's end the next process may have
// the lock: the margin of the holder's belief, and a machine that is busy.
const patience = 1500 * time.Millisecond

func run(s *demo.Show) (problems demo.Problems) {
	s.Print("A job of %d steps under a lease of %v, on", len(steps), leaseTTL)
	s.Print("%s.", s.Server)
	s.Print("Four processes run it at once, each with a key of its own, for some seconds.")
	s.Print("For two of them Redis is away for %v, and two are killed.\n", awayFor)
	fleet := s.Fleet()
	a, b := fleet.Start("A", "worker", "job-A", modeRenew), fleet.Start("B", "worker", "job-B", modeExtend)
	c, d := fleet.Start("C", "worker", "job-C", modeRenew), fleet.Start("D", "worker", "job-D", modeExtend)
	var long time.Time // when the last of them began its long step
	for _, p := range []*demo.Process{a, b, c, d} {
		if e := fleet.Await(demo.Event{From: p.Name, Kind: began, Number: 2}); e.At.After(long) {
			long = e.At
		}
	}
	fleet.Start("C's heir", "heir", "job-C")
	fleet.Start("D's heir", "heir", "job-D")
	time.Sleep(time.Until(long.Add(awayAt)))
	cut := time.Now()
	a.Cut()
	b.Cut()
	time.Sleep(time.Until(long.Add(killAt)))
	killed := time.Now()
	c.Kill()
	d.Kill()
	time.Sleep(time.Until(cut.Add(awayFor)))
	a.Mend()
	b.Mend()

	stop := fleet.Await(demo.Event{From: "A", Kind: lost})
	s.Print("A, renewed : told %.1f s into the outage that its lease was lost, and stopped.", stop.At.Sub(cut).Seconds())
	problems.If(stop.At.Sub(cut) > awayFor, "A was told of the loss only when Redis was back")
	fleet.Await(demo.Event{From: "B", Kind: done})
	s.Print("B, extended: kept its lease and did all of its steps.")
	for _, name := range []string{"C", "D"} {
		waited := fleet.Await(demo.Event{From: name + "'s heir", Kind: locked}).At.Sub(killed)
		s.Print("%s, %s: killed; the next process had the lock %.1f s later.", name, map[string]string{"C": "renewed ", "D": "extended"}[name], waited.Seconds())
		var left time.Duration // of its lease when it died, by its last sample
		for _, e := range fleet.Events() {
			if e.From == name && e.Kind == sample {
				left = e.Left - killed.Sub(e.At)
			}
		}
		problems.If(waited < left || waited > left+patience,
			"%s's lease had %v left when it was killed, and another process had the lock after %v", name, left, waited)
		problems.If((left > leaseTTL) != (name == "D"), "%s's lease had %v left when it was killed, with a TTL of %v", name, left, leaseTTL)
	}
	if len(problems) == 0 {
		s.Print("\nThe renewal alone frees a dead process's lease soon, and loses the lease when")
		s.Print("Redis is away for longer than the TTL. Extend survives that, and its price is")
		s.Print("that a dead process's lease stays taken for as long as it was extended.")
	}
	return problems
}
