package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

// session is all that runs: the server, the origin, the server processes and
// their clients.
type session struct {
	set    settings
	srv    *demo.Server
	rec    *record
	origin *origin
	fleet  *fleet
	crowd  *crowd
}

func newSession(ctx context.Context, set settings) (s *session, err error) {
	s = &session{set: set, rec: newRecord(set.ttl, set.processes)}
	if !set.headless {
		s.rec.watch = newWatch(set.processes)
	}
	if s.srv, err = demo.Connect(ctx); err != nil {
		return nil, err
	}
	s.fleet = newFleet(ctx, s.rec)
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.origin, err = startOrigin(set.load, s.rec); err != nil {
		return nil, err
	}
	name := demo.RunName("hotkey") // everything that it leaves on the server expires
	for num := 1; num <= set.processes; num++ {
		j := job{Process: num, Name: name, Origin: s.origin.url, TTL: set.ttl, StaleFor: set.stale}
		if err = s.fleet.start(j, s.srv); err != nil {
			return nil, err
		}
	}
	s.crowd = newCrowd(s.rec, set.clients, s.fleet.addrs())
	return s, nil
}

// close ends the processes first: they still need the others.
func (s *session) close() {
	s.fleet.close()
	if s.origin != nil {
		s.origin.close()
	}
	s.srv.Close()
}

// headless runs one phase in each mode. It returns what went against the
// promises; an error says that the run could not be made.
func headless(ctx context.Context, set settings, out io.Writer) (problems []string, err error) {
	s, err := newSession(ctx, set)
	if err != nil {
		return nil, err
	}
	defer s.close()
	intro(out, s)
	var results []result
	for _, m := range modes {
		r, err := s.phase(m)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	problems = verdict(results)
	report(out, set, results, problems)
	return problems, nil
}

// phase lets the clients ask for a while and returns what that came to, when
// everything that it had set going has ended.
func (s *session) phase(m mode) (result, error) {
	if err := s.fleet.change(m); err != nil {
		return result{}, err
	}
	ctx := s.fleet.ctx
	end := make(chan struct{})
	timer := time.AfterFunc(s.set.phase, func() { close(end) })
	defer timer.Stop()
	s.crowd.run(ctx, end)

	// A stale answer's rebuild goes on behind it, or is about to begin.
	const quiet = 200 * time.Millisecond
	since := time.Now()
	for time.Since(since) < quiet {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return result{}, fmt.Errorf("in the phase %q: %w", m.name(), context.Cause(ctx))
		}
		if s.rec.loadsNow() > 0 {
			since = time.Now()
		}
	}
	return s.rec.result(m), nil
}
