package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
)

type stage struct {
	out       *demo.Output
	db        *sql.DB
	link      *demo.Link
	fleet     *demo.Fleet
	processes map[string]*demo.Process // that live
}

func newStage(ctx context.Context, out *demo.Output, srv *demo.Server, d *database.Database) (s *stage, err error) {
	s = &stage{out: out, processes: map[string]*demo.Process{}}
	s.fleet = demo.NewFleet(srv, demo.RunName("cron"))
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.db, err = database.Open(d.URL); err != nil {
		return nil, err
	}
	if err = openTables(ctx, s.db); err != nil {
		return nil, err
	}
	if s.link, err = demo.NewLink(srv); err != nil {
		return nil, err
	}
	for _, name := range names {
		spec := demo.Spec{Name: name, Role: "scheduler", Env: d.Env(), Link: s.link}
		if s.processes[name], err = s.fleet.Start(spec); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *stage) close() {
	s.fleet.Close()
	if s.link != nil {
		s.link.Close()
	}
	if s.db != nil {
		_ = s.db.Close()
	}
}

// outcome is what became of the nights.
type outcome struct {
	events   []demo.Event
	sent     map[[2]int]int // by night and letter
	killed   string
	killedAt time.Time
	backAt   time.Time // when Redis was back
}

func (s *stage) play(ctx context.Context) (o outcome, err error) {
	if err := s.strike(1); err != nil {
		return o, err
	}
	if err := s.awaitReady(ctx, 1); err != nil {
		return o, err
	}

	if err := s.strike(2); err != nil {
		return o, err
	}
	fifth, err := s.fleet.Await(ctx, "the second night's fifth letter", func(e demo.Event) bool {
		return e.Kind == sent && e.Number == 2 && e.Item == 5
	})
	if err != nil {
		return o, err
	}
	o.killed = fifth.From
	s.processes[o.killed].Kill()
	o.killedAt = time.Now()
	delete(s.processes, o.killed)
	s.out.Say("%s is killed in the middle.", o.killed)
	if err := s.awaitReady(ctx, 2); err != nil {
		return o, err
	}

	s.link.Cut()
	s.out.Say("Redis is away.")
	if err := s.strike(3); err != nil {
		return o, err
	}
	if err := s.awaitAll(ctx, rests, 3); err != nil {
		return o, err
	}
	o.backAt = time.Now()
	s.link.Mend()
	s.out.Say("Nobody could begin. Redis is back.")
	if err := s.awaitReady(ctx, 3); err != nil {
		return o, err
	}
	if err := s.fleet.Stop(ctx); err != nil {
		return o, err
	}
	o.events = s.fleet.Events()
	o.sent, err = lettersSent(ctx, s.db)
	return o, err
}

// strike tells all processes that the hour has come.
func (s *stage) strike(night int) error {
	s.out.Say("Night %d: the hour strikes.", night)
	for _, p := range s.processes {
		if err := p.Send(strconv.Itoa(night)); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) awaitReady(ctx context.Context, night int) error {
	e, err := s.fleet.Await(ctx, fmt.Sprintf("the end of night %d", night), func(e demo.Event) bool {
		return e.Kind == ready && e.Number == night
	})
	if err != nil {
		return err
	}
	s.out.Say("%s has sent the last letter of night %d.", e.From, night)
	return s.awaitAll(ctx, over, night)
}

// awaitAll waits until every process that lives has reported something of a night.
func (s *stage) awaitAll(ctx context.Context, kind string, night int) error {
	for name := range s.processes {
		if _, err := s.fleet.Await(ctx, fmt.Sprintf("%s: %s, night %d", name, kind, night), func(e demo.Event) bool {
			return e.From == name && e.Kind == kind && e.Number == night
		}); err != nil {
			return err
		}
	}
	return nil
}
