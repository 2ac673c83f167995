package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

type stage struct {
	out       *demo.Output
	fleet     *demo.Fleet
	processes map[string]*demo.Process
	links     map[string]*demo.Link
}

func (s *stage) start(srv *demo.Server, name string) (err error) {
	if s.links[name], err = demo.NewLink(srv); err != nil {
		return err
	}
	s.processes[name], err = s.fleet.Start(demo.Spec{Name: name, Role: "candidate", Link: s.links[name]})
	return err
}

func (s *stage) close() {
	s.fleet.Close()
	for _, l := range s.links {
		l.Close()
	}
}

// end is how a leader's term was ended from outside.
type end struct {
	what      string // shut down, cut off or killed
	old, next string
	told      time.Duration // from then until the old leader had stopped; killed: 0
	without   time.Duration // no leader for so long
	took      time.Duration // from then until the next one led
}

// play ends the leader's term in three ways.
func (s *stage) play(ctx context.Context) (ends []end, err error) {
	leader, err := s.awaitLeader(ctx, -1)
	if err != nil {
		return nil, err
	}
	s.out.Say("%s leads.", leader.From)
	for _, act := range []struct {
		what string
		do   func(name string)
	}{
		{"shut down", func(name string) { s.processes[name].Stop() }},
		{"cut off", func(name string) { s.links[name].Cut() }},
		{"killed", func(name string) { s.processes[name].Kill() }},
	} {
		// Long enough for renewals, so that the lease that ends is one that was
		// kept alive.
		time.Sleep(leaseTTL)
		old := leader
		s.out.Say("%s is %s.", old.From, act.what)
		began := time.Now()
		act.do(old.From)

		e := end{what: act.what, old: old.From}
		gone := began
		if act.what != "killed" {
			stop, err := s.awaitStop(ctx, old)
			if err != nil {
				return nil, err
			}
			gone = stop.At
			e.told = stop.At.Sub(began)
			s.out.Say("%s has stopped: %s.", old.From, stop.Text)
		}
		if leader, err = s.awaitLeader(ctx, old.Index); err != nil {
			return nil, err
		}
		e.next = leader.From
		e.took = leader.At.Sub(began)
		e.without = leader.At.Sub(gone)
		s.out.Say("%s leads.", leader.From)
		ends = append(ends, e)
		s.links[old.From].Mend() // a process that was cut off is a candidate again
	}
	time.Sleep(leaseTTL / 2)
	return ends, s.fleet.Stop(ctx)
}

// awaitLeader waits for the next process that leads.
func (s *stage) awaitLeader(ctx context.Context, after int) (demo.Event, error) {
	return s.fleet.Await(ctx, "a new leader", func(e demo.Event) bool {
		return e.Index > after && e.Kind == leads
	})
}

// awaitStop waits for the end of a leader's term as the leader tells it.
func (s *stage) awaitStop(ctx context.Context, leader demo.Event) (demo.Event, error) {
	return s.fleet.Await(ctx, fmt.Sprintf("the end of %s's term", leader.From), func(e demo.Event) bool {
		return e.Index > leader.Index && e.From == leader.From && e.Kind == stopped
	})
}
