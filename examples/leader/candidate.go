package main

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/mutex"
)

// leaseTTL bounds how long the fleet has no leader after a crash. It is short
// because somebody is watching.
const leaseTTL = time.Second

// What a candidate reports.
const (
	leads   = "leads"   // Token
	stopped = "stopped" // Text says why it does not lead any more; its lease was to last until Until
)

// candidate waits for its turn to lead, again and again, until it is asked to
// end.
func candidate(ctx context.Context, c *demo.Child) error {
	locks, err := mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: leaseTTL})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, locks)
	for ctx.Err() == nil {
		lock, err := locks.Lock(ctx, "leader")
		switch {
		case err == nil:
			lead(c, lock)
		case errors.Is(err, leasehold.ErrUnavailable): // also where ctx ended meanwhile
			sleep(ctx, 50*time.Millisecond)
		case ctx.Err() == nil:
			return err
		}
	}
	return nil
}

// lead is the leader's work. It ends with the lock's Context: when the lease is
// lost, and when the process is asked to end, because the Context descends from
// the candidate's ctx.
func lead(c *demo.Child, lock *mutex.Lock) {
	c.Report(demo.Event{Kind: leads, Token: lock.Token()})
	<-lock.Context().Done() // here a real leader works, under this Context
	why := "it was asked to end"
	if errors.Is(context.Cause(lock.Context()), leasehold.ErrLost) {
		why = "its lease was lost"
	}
	// First the work ends, then the lock is given back: the next leader can begin
	// as soon as Unlock has reached the server.
	c.Report(demo.Event{Kind: stopped, Text: why, Until: lock.Deadline()})
	_ = lock.Unlock() // lost, or given back; else it ends with its TTL
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
