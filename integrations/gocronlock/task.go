// Package gocronlock lets a fleet of gocron schedulers run each tick of a job once.
//
//	task, err := gocronlock.Task(locks, "report", gocronlock.Config{Slot: gocronlock.Every(time.Hour)},
//		func(ctx context.Context, token uint64) error { return report(ctx) })
//	…
//	job, err := scheduler.NewJob(gocron.CronJob("0 * * * *", false), task)
//
// Task is what to use. Locker is for jobs whose function cannot be changed.
package gocronlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/mutex"
)

// DefaultKeep is the Keep of a Config that has none.
const DefaultKeep = time.Hour

// Config configures a Task or a Locker. MinHold is of a Locker, all else of a Task.
type Config struct {
	// Slot returns the name of the tick for which the job runs at the time now, by the clock of this host: the same on
	// all hosts, 1 to 512 bytes. Every makes one for a regular job. It is required.
	Slot func(now time.Time) string

	// Keep is how long it is remembered that a tick was completed, at least 1 s. It must be
	// longer than the time by which the hosts' clocks can differ. 0: 1 hour.
	Keep time.Duration

	// Wait bounds how long a tick waits while another process runs the job. It matters if the
	// hosts' clocks differ by more than the time between two ticks: then that process may be
	// running another tick. 0: a tick is skipped where another process runs the job.
	Wait time.Duration

	// Now is the clock of the scheduler, for one that has a gocron.WithClock. nil: time.Now.
	Now func() time.Time

	// MinHold is how long a Locker's lock is held at least, also if the job ends sooner. It must
	// be longer than the time by which the hosts' clocks can differ, or a short job runs on
	// several hosts, one after the other, and shorter than the time between two ticks, or ticks
	// are skipped. Close of the mutex gives the lock back at once: call it MinHold after the
	// scheduler was shut down. A Locker requires MinHold, at least 1 ms. A Task refuses it.
	MinHold time.Duration
}

// Every returns a Slot for a job that runs at each multiple of period, counted as time.Truncate does: in UTC, a day
// begins at midnight. A run may begin early, by a quarter of period and by 1 s at most, and late by the rest of period.
// With a period of 0 or less, each run fails with leasehold.ErrInvalid.
func Every(period time.Duration) func(now time.Time) string {
	early := min(period/4, time.Second)
	return func(now time.Time) string {
		if period <= 0 {
			return ""
		}
		return now.Add(early).Truncate(period).UTC().Format(time.RFC3339Nano)
	}
}

// Task returns a task for a gocron job that runs fn once for each tick in the whole fleet,
// however the clocks of the hosts differ. name is the job's, and the key of its lock. Task
// takes a lock for each run, so two runs of a job never overlap, not even for different ticks.
//
// The ctx of fn descends from that of the gocron job, and ends when the lock is lost. token is
// the fencing token, and SlotOf tells the slot. If fn fails, or the lock is lost, the tick stays
// open: a host that strikes later runs it again. The error goes to the listeners of the gocron
// job. A tick that another process runs or has completed is no error.
//
// gocron.WithLimitedRuns removes the job when any of its runs completes after the last one has
// begun, and so ends the ctx of the last run. It suits jobs whose runs do not overlap.
//
// Task's error matches leasehold.ErrInvalid and names every bad field. A run costs two round
// trips, and a tick that was completed before costs one.
func Task(m *mutex.Mutex, name string, cfg Config, fn func(ctx context.Context, token uint64) error) (gocron.Task, error) {
	cfg.Keep = cmp.Or(cfg.Keep, DefaultKeep)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := cfg.check(m, name, fn == nil); err != nil {
		return nil, fmt.Errorf("leasehold: gocronlock: bad configuration: %w", err)
	}
	return gocron.NewTask(func(ctx context.Context) error {
		slot := cfg.Slot(cfg.Now())
		ctx = context.WithValue(ctx, slotKey{}, slot)
		var ran bool
		var err error
		if cfg.Wait == 0 {
			ran, err = m.TryDoOnce(ctx, name, slot, cfg.Keep, fn)
		} else {
			ran, err = waitAndDo(ctx, m, name, slot, cfg, fn)
		}
		if !ran && errors.Is(err, leasehold.ErrBusy) { // that of a job is the job's own
			return nil
		}
		return err
	}), nil
}

type slotKey struct{}

// SlotOf returns the slot of the tick that a Task runs, from the ctx of its function. It is "" for any other ctx.
func SlotOf(ctx context.Context) string {
	slot, _ := ctx.Value(slotKey{}).(string)
	return slot
}

// waitAndDo runs fn once for the slot, after a wait of up to cfg.Wait. The ctx of the wait is
// the parent of the lock's, so a timer that fn stops ends it, and no deadline.
func waitAndDo(ctx context.Context, m *mutex.Mutex, name, slot string, cfg Config, fn func(ctx context.Context, token uint64) error) (ran bool, err error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(cfg.Wait, cancel)
	defer timer.Stop()
	_, err = m.DoOnce(waiting, name, slot, cfg.Keep, func(ctx context.Context, token uint64) error {
		if !timer.Stop() {
			return leasehold.ErrBusy // the wait was over when the lock came
		}
		ran = true
		return fn(ctx, token)
	})
	if !ran && errors.Is(err, context.Canceled) && ctx.Err() == nil { // by the timer alone
		err = fmt.Errorf("leasehold: gocronlock: no answer within %v: %w: %w", cfg.Wait, leasehold.ErrUnavailable, err)
	}
	return ran, err
}

func (c *Config) check(m *mutex.Mutex, name string, noFunction bool) error {
	return errors.Join(
		keys.Unless(m != nil, "m", "is nil; want a mutex of mutex.New"),
		keys.Unless(name != "" && len(name) <= keys.MaxLen, "name", "has %d bytes; want 1 to %d", len(name), keys.MaxLen),
		keys.Unless(c.Slot != nil, "Slot", "is nil; want a function, such as Every(time.Hour)"),
		keys.Unless(c.Keep >= time.Second, "Keep", "is %v; want at least 1s, or 0 for %v", c.Keep, DefaultKeep),
		keys.Unless(c.Wait >= 0, "Wait", "is %v; want 0 (no wait) or more", c.Wait),
		keys.Unless(c.MinHold == 0, "MinHold", "is %v; want 0, since it is of a Locker", c.MinHold),
		keys.Unless(!noFunction, "fn", "is nil; want a function"))
}
