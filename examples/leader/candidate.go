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
	stopped = "stopped" // Text says why it does not lead any more
)

// candidate leads each time that it is its turn, until it is asked to end.
func candidate(ctx context.Context, c *demo.Child) error {
	locks, err := mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: leaseTTL})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, locks)
	err = locks.Lead(ctx, "leader", func(ctx context.Context, token uint64) error {
		c.Report(demo.Event{Kind: leads, Token: token})
		<-ctx.Done() // here a real leader works, under this ctx
		why := "it was asked to end"
		if errors.Is(context.Cause(ctx), leasehold.ErrLost) {
			why = "its lease was lost"
		}
		// First the work ends. Then Lead gives the lock back, and the next leader begins.
		c.Report(demo.Event{Kind: stopped, Text: why})
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
