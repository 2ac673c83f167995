package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
)

// stage is where the rounds take place.
type stage struct {
	out      *demo.Output
	srv      *demo.Server
	database *database.Database
}

// outcome is how a round ended.
type outcome struct {
	oldToken, newToken uint64 // of A's first lock and of B's
	stale              string // of A's late write: accepted or refused
	told               string // what A's Unlock said after it
	afterStale         int    // the balance after the late write
	balance            int    // at the end
}

// missing says in words what of the deposits the balance lacks.
func (o outcome) missing() string {
	lacks := opening + depositOfA + depositOfB - o.balance
	if lacks == 0 {
		return " Both deposits are in it."
	}
	return fmt.Sprintf(" %d are missing: the data are corrupt.", lacks)
}

// round is one run of the story.
func (s *stage) round(ctx context.Context, fenced bool) (o outcome, err error) {
	db, err := database.Open(s.database.URL)
	if err != nil {
		return o, err
	}
	defer db.Close()
	if err := openAccount(ctx, db); err != nil {
		return o, err
	}
	fleet := demo.NewFleet(s.srv, demo.RunName("fencing"))
	defer fleet.Close()

	a, err := s.start(fleet, "A", depositOfA, fenced)
	if err != nil {
		return o, err
	}
	if o.oldToken, err = s.awaitRead(ctx, fleet, "A"); err != nil {
		return o, err
	}
	if err := a.Pause(); err != nil {
		return o, err
	}
	s.out.Say("A is stopped here (SIGSTOP). Its lease of %v runs out.", lockTTL)

	b, err := s.start(fleet, "B", depositOfB, fenced)
	if err != nil {
		return o, err
	}
	if o.newToken, err = s.awaitRead(ctx, fleet, "B"); err != nil {
		return o, err
	}
	if _, err := s.write(ctx, fleet, b); err != nil {
		return o, err
	}
	if _, err := fleet.AwaitFrom(ctx, "B", demo.Ended); err != nil {
		return o, err
	}

	s.out.Say("A goes on (SIGCONT), and does not know that time has passed.")
	if err := a.Resume(); err != nil {
		return o, err
	}
	write, err := s.write(ctx, fleet, a)
	if err != nil {
		return o, err
	}
	o.stale = write.Text
	told, err := fleet.AwaitFrom(ctx, "A", unlock)
	if err != nil {
		return o, err
	}
	o.told = told.Text
	s.out.Say("A unlocks, and is told: the lease was %s.", told.Text)
	if o.afterStale, err = readBalance(ctx, db); err != nil {
		return o, err
	}
	if o.stale == refused {
		if err := s.again(ctx, fleet, a, told.Index); err != nil {
			return o, err
		}
	}
	if _, err := fleet.AwaitFrom(ctx, "A", demo.Ended); err != nil {
		return o, err
	}
	o.balance, err = readBalance(ctx, db)
	return o, err
}

// again lets a process whose write was refused take the lock anew, and write.
func (s *stage) again(ctx context.Context, fleet *demo.Fleet, p *demo.Process, after int) error {
	next := func(kind string) (demo.Event, error) {
		return fleet.Await(ctx, p.Name+" "+kind, func(e demo.Event) bool {
			return e.Index > after && e.From == p.Name && e.Kind == kind
		})
	}
	balance, err := next(read)
	if err != nil {
		return err
	}
	s.out.Say("%s begins anew: it takes the lock and reads %d.", p.Name, balance.Number)
	if err := p.Send("write"); err != nil {
		return err
	}
	write, err := next(wrote)
	if err != nil {
		return err
	}
	s.out.Say("%s writes %d: %s.", p.Name, write.Number, write.Text)
	return nil
}

func (s *stage) start(fleet *demo.Fleet, name string, amount int, fenced bool) (*demo.Process, error) {
	mode := argPlain
	if fenced {
		mode = argFenced
	}
	return fleet.Start(demo.Spec{
		Name: name, Role: "depositor",
		Args: []string{strconv.Itoa(amount), mode},
		Env:  s.database.Env(),
	})
}

// awaitRead waits until a process has the lock and has read the balance.
func (s *stage) awaitRead(ctx context.Context, fleet *demo.Fleet, name string) (token uint64, err error) {
	lock, err := fleet.AwaitFrom(ctx, name, locked)
	if err != nil {
		return 0, err
	}
	balance, err := fleet.AwaitFrom(ctx, name, read)
	if err != nil {
		return 0, err
	}
	s.out.Say("%s has the lock, with token %d, and reads %d.", name, lock.Token, balance.Number)
	return lock.Token, nil
}

// write lets a process write, and waits for it.
func (s *stage) write(ctx context.Context, fleet *demo.Fleet, p *demo.Process) (demo.Event, error) {
	if err := p.Send("write"); err != nil {
		return demo.Event{}, err
	}
	write, err := fleet.AwaitFrom(ctx, p.Name, wrote)
	if err != nil {
		return write, err
	}
	s.out.Say("%s writes %d: %s.", p.Name, write.Number, write.Text)
	return write, nil
}
