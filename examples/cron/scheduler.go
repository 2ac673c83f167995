package main

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
	"github.com/leasehold-go/leasehold/mutex"
)

// leaseTTL bounds how long the job rests when the process that runs it has died.
// It is short because somebody is watching.
const leaseTTL = time.Second

// letterTakes is how long a letter takes to write.
const letterTakes = 60 * time.Millisecond

// What a scheduler reports. Number is the night.
const (
	begins = "begins" // it has the lock, and the night's slot is open
	sent   = "sent"   // Item is the letter
	ready  = "ready"  // all letters of the night are sent
	over   = "over"   // the process knows that the night's job is done
	rests  = "rests"  // the lock could not be had: Text says why; it tries again
)

// scheduler runs the job in each night whose hour strikes. Its parent is the
// clock: an order is the number of a night. A real one sleeps until the hour, and
// at its start looks for nights that were missed.
func scheduler(ctx context.Context, c *demo.Child) error {
	db, err := database.FromEnv()
	if err != nil {
		return err
	}
	defer db.Close()
	locks, err := mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: leaseTTL})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, locks)
	for {
		select {
		case order := <-c.Orders:
			night, err := strconv.Atoi(order)
			if err != nil {
				return err
			}
			if err := seeToNight(ctx, c, db, locks, night); err != nil {
				return err
			}
			c.Report(demo.Event{Kind: over, Number: night})
		case <-ctx.Done():
			return nil
		}
	}
}

// keep is how long a night's slot is remembered. It has to be longer than the
// time by which the clocks of the processes differ.
const keep = time.Minute

// seeToNight returns when the night's job is done, by this process or another.
// All processes wait, so one of them takes over at once when another dies. One
// whose clock is late finds the night's slot complete.
func seeToNight(ctx context.Context, c *demo.Child, db *sql.DB, locks *mutex.Mutex, night int) error {
	for ctx.Err() == nil {
		_, err := locks.DoOnce(ctx, "nightly", strconv.Itoa(night), keep, func(ctx context.Context, _ uint64) error {
			return runNight(ctx, c, db, night)
		})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
		case errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrLost):
			c.Report(demo.Event{Kind: rests, Number: night, Text: err.Error()})
			wait(ctx, 100*time.Millisecond)
		default:
			return err
		}
	}
	return nil
}

// runNight sends what is left of the night's letters. ctx ends when the lease is
// lost. When it has returned nil, the call that gives the lock back completes the
// night's slot.
func runNight(ctx context.Context, c *demo.Child, db *sql.DB, night int) error {
	c.Report(demo.Event{Kind: begins, Number: night})
	for letter := 1; letter <= letters; letter++ {
		isNew, err := send(ctx, db, night, letter, c.Name)
		if err != nil {
			return err
		}
		if isNew {
			c.Report(demo.Event{Kind: sent, Number: night, Item: letter})
			if err := wait(ctx, letterTakes); err != nil {
				return err
			}
		}
	}
	c.Report(demo.Event{Kind: ready, Number: night})
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
