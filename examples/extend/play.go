package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

// Both disturbances come in the long step.
const (
	awayAt  = time.Second             // into that step
	awayFor = 3400 * time.Millisecond // longer than the TTL, shorter than what Extend asked for
	killAt  = 1800 * time.Millisecond
)

// record is what became of one worker.
type record struct {
	name, mode string
	killed     bool // else Redis was away

	start   time.Time     // of its first step
	samples []demo.Event  // what was left of the lease
	steps   []time.Time   // their starts
	awayAt  time.Duration // from start
	killAt  time.Duration
	lostAt  time.Duration // 0: it was not
	done    bool
	heirAt  time.Duration // when the heir of a killed worker had the lock
}

// play runs four workers at once: a renewing and an extending one through an
// outage of Redis, and the same two with a kill.
func play(ctx context.Context, srv *demo.Server) ([]*record, error) {
	fleet := demo.NewFleet(srv, demo.RunName("extend"))
	defer fleet.Close()
	records := []*record{
		{name: "A", mode: modeRenew},
		{name: "B", mode: modeExtend},
		{name: "C", mode: modeRenew, killed: true},
		{name: "D", mode: modeExtend, killed: true},
	}
	failures := make(chan error, len(records))
	for _, r := range records {
		go func() { failures <- r.play(ctx, srv, fleet) }()
	}
	var errs []error
	for range records {
		errs = append(errs, <-failures)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, r := range records {
		r.read(fleet.Events())
	}
	return records, nil
}

func (r *record) play(ctx context.Context, srv *demo.Server, fleet *demo.Fleet) error {
	link, err := demo.NewLink(srv)
	if err != nil {
		return err
	}
	defer link.Close()
	key := "job-" + r.name
	p, err := fleet.Start(demo.Spec{Name: r.name, Role: "worker", Args: []string{key, r.mode}, Link: link})
	if err != nil {
		return err
	}
	long, err := fleet.Await(ctx, r.name+"'s long step", func(e demo.Event) bool {
		return e.From == r.name && e.Kind == began && e.Number == 2
	})
	if err != nil {
		return err
	}
	first, err := fleet.AwaitFrom(ctx, r.name, began)
	if err != nil {
		return err
	}
	r.start = first.At
	if !r.killed {
		time.Sleep(time.Until(long.At.Add(awayAt)))
		r.awayAt = time.Since(r.start)
		link.Cut()
		time.Sleep(awayFor)
		link.Mend()
		_, err := fleet.AwaitFrom(ctx, r.name, demo.Ended)
		return err
	}
	heir := r.name + "'s heir"
	if _, err := fleet.Start(demo.Spec{Name: heir, Role: "heir", Args: []string{key}}); err != nil {
		return err
	}
	time.Sleep(time.Until(long.At.Add(killAt)))
	r.killAt = time.Since(r.start)
	p.Kill()
	has, err := fleet.AwaitFrom(ctx, heir, locked)
	if err != nil {
		return err
	}
	r.heirAt = has.At.Sub(r.start)
	return nil
}

// read takes from the events what r's worker has reported.
func (r *record) read(events []demo.Event) {
	for _, e := range events {
		if e.From != r.name {
			continue
		}
		switch e.Kind {
		case sample:
			r.samples = append(r.samples, e)
		case began:
			r.steps = append(r.steps, e.At)
		case lost:
			r.lostAt = e.At.Sub(r.start)
		case done:
			r.done = true
		}
	}
}

// left is what is left of the lease at a time. Between two samples, and after the
// last one, it runs out with time. alive: the holder was not yet killed.
func (r *record) left(at time.Duration) (left time.Duration, alive bool) {
	alive = !r.killed || at <= r.killAt
	when := r.start.Add(at)
	for i := len(r.samples) - 1; i >= 0; i-- {
		if s := r.samples[i]; !s.At.After(when) {
			return max(0, s.Left-when.Sub(s.At)), alive
		}
	}
	return 0, alive
}

// first is the time of the first sample.
func (r *record) first() time.Duration {
	if len(r.samples) == 0 {
		return 0
	}
	return r.samples[0].At.Sub(r.start)
}

func (r *record) title() string {
	how := "renewed in the background"
	if r.mode == modeExtend {
		how = "extended before each step"
	}
	what := fmt.Sprintf("Redis is away for %v", awayFor)
	if r.killed {
		what = "the process is killed"
	}
	return how + "; " + what
}

func (r *record) outcome() string {
	switch {
	case r.killed:
		return fmt.Sprintf("%s was killed after %s; the next process had the lock %s later.",
			r.name, seconds(r.killAt), seconds(r.heirAt-r.killAt))
	case r.lostAt > 0:
		return fmt.Sprintf("%s was told that its lease was lost after %s, and stopped its work.", r.name, seconds(r.lostAt))
	default:
		return fmt.Sprintf("%s kept its lease and did all of its steps.", r.name)
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
