package main

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/mutex"
)

// leaseTTL is short because somebody is watching; the default is 30 s.
const leaseTTL = 2 * time.Second

// step is a part of the job.
type step struct {
	takes  time.Duration
	extend time.Duration // how long the lease must last for it, with a reserve
}

var steps = []step{
	{takes: 1600 * time.Millisecond, extend: 3 * time.Second},
	{takes: 5200 * time.Millisecond, extend: 8 * time.Second},
	{takes: 1200 * time.Millisecond, extend: 2400 * time.Millisecond},
}

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

const sampleEvery = 20 * time.Millisecond

// worker runs the job under the lock of a key.
func worker(ctx context.Context, c *demo.Child) error {
	key, mode := c.Args[0], c.Args[1]
	locks, err := mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: leaseTTL})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, locks)
	lock, err := locks.Lock(ctx, key)
	if err != nil {
		return err
	}
	for i, s := range steps {
		if mode == modeExtend {
			// The renewals go on beside it, and never shorten what Extend set.
			if err := lock.Extend(ctx, s.extend); err != nil {
				return err
			}
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
	ticks := time.NewTicker(sampleEvery)
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
	locks, err := mutex.New(c.Redis, mutex.Config{Name: c.Run, TTL: leaseTTL})
	if err != nil {
		return err
	}
	defer demo.Close(ctx, locks)
	lock, err := locks.Lock(ctx, c.Args[0])
	if err != nil {
		return err
	}
	c.Report(demo.Event{Kind: locked})
	return lock.Unlock()
}
