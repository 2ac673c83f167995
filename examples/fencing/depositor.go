package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/internal/database"
	"github.com/leasehold-go/leasehold/mutex"
)

// lockTTL is short because somebody is watching; the default of 30 s suits most
// work better.
const lockTTL = time.Second

// What a depositor reports.
const (
	locked = "locked" // Token
	read   = "read"   // Number is the balance
	wrote  = "wrote"  // Number is the balance; Text is accepted or refused
	unlock = "unlock" // Text is what Unlock returned
)

const (
	accepted = "accepted"
	refused  = "refused"
)

const (
	argFenced = "fenced"
	argPlain  = "plain"
)

// depositor adds an amount to the balance under the lock. Between reading and
// writing it waits for its parent's word, so that the parent can stop it there.
// Where its write is refused it starts again with a new lock, as a program should.
func depositor(ctx context.Context, c *demo.Child) error {
	amount, err := strconv.Atoi(c.Args[0])
	if err != nil {
		return err
	}
	db, err := database.FromEnv()
	if err != nil {
		return err
	}
	defer db.Close()
	locks, err := mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: lockTTL})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, locks)

	for {
		lock, err := locks.Lock(ctx, account)
		if err != nil {
			return err
		}
		c.Report(demo.Event{Kind: locked, Token: lock.Token()})
		balance, err := readBalance(ctx, db)
		if err != nil {
			return err
		}
		c.Report(demo.Event{Kind: read, Number: balance})

		select {
		case <-c.Orders: // go on
		case <-ctx.Done():
			return nil
		}
		// Not under the lock's Context, which has ended by now if the lock is lost:
		// this is the process that was stopped after it last looked there, with its
		// write already under way. No client can rule that out.
		rows, err := writeBalance(ctx, db, balance+amount, lock.Token(), c.Args[1] == argFenced)
		if err != nil {
			return err
		}
		e := demo.Event{Kind: wrote, Number: balance + amount, Text: accepted}
		if rows == 0 {
			e.Text = refused
		}
		c.Report(e)

		e = demo.Event{Kind: unlock, Text: "held to the end"}
		if err := lock.Unlock(); errors.Is(err, leasehold.ErrLost) {
			e.Text = "lost"
		} else if err != nil {
			return err
		}
		c.Report(e)
		if rows > 0 {
			return nil
		}
	}
}
