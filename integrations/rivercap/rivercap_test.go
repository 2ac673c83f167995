package rivercap_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/integrations/rivercap"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestNewNamesEveryBadField(t *testing.T) {
	_, err := rivercap.New(nil, rivercap.Config{MaxWait: -1, MaxWaiters: -1, UnavailableDelay: -1})
	redistest.WantErr(t, err, leasehold.ErrInvalid)
	redistest.WantText(t, err, "rivercap", "semaphore is nil", "Key is nil", "MaxWait is -1ns; want at least 1ms",
		"MaxWaiters is -1; want at least 1", "UnavailableDelay is -1ns; want at least 1ms")
}

// once are options of a job that is discarded if it uses up an attempt.
var once = &river.InsertOpts{MaxAttempts: 1}

// A refusal and a lost lease lose no job, and use up no attempt.
func TestRefusedAndLostJobs(t *testing.T) {
	_, pool := newDatabase(t)
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	started := make(chan *river.Job[job], 10)
	end := make(chan struct{})
	causes := make(chan error, 1)
	client := newClient(t, pool, caps, rivercap.Config{MaxWait: 50 * time.Millisecond, UnavailableDelay: 100 * time.Millisecond}, 10,
		func(ctx context.Context, j *river.Job[job]) error {
			started <- j
			select {
			case <-end:
				return nil
			case <-ctx.Done():
				causes <- context.Cause(ctx)
				return fmt.Errorf("stopped: %w", ctx.Err())
			}
		})
	start(t, client)
	first := insert(t, client, tenant, once)
	redistest.Get(t, "the first job", started)
	second := insert(t, client, tenant, once)
	awaitSnooze(t, client, second.ID)
	uncapped := insert(t, client, "", once)
	if j := redistest.Get(t, "a job without a key", started); j.ID != uncapped.ID {
		t.Fatalf("job %d runs; want %d", j.ID, uncapped.ID)
	}

	captest.Revoke(t, caps)
	redistest.WantErr(t, redistest.Get(t, "the loss", causes), leasehold.ErrLost)
	close(end)
	for _, row := range []*rivertype.JobRow{first, second} {
		if row := await(t, client, row.ID, rivertype.JobStateCompleted); row.Attempt != 1 || len(row.Errors) != 0 || !snoozed(row) {
			t.Errorf("job %d: attempt %d, errors %v, metadata %s", row.ID, row.Attempt, row.Errors, row.Metadata)
		}
	}
	captest.WantState(t, caps, 0, 0)
}

// The cap passes on the error of a job unchanged. A mistake in the program fails the job.
func TestErrorsOfJobs(t *testing.T) {
	_, pool := newDatabase(t)
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1, MaxHold: 200 * time.Millisecond})
	client := newClient(t, pool, caps, rivercap.Config{
		Key:     func(row *rivertype.JobRow) string { return "k-" + tenantOf(row) },
		Permits: func(row *rivertype.JobRow) int { return 1 + strings.Count(tenantOf(row), "two") },
	}, 10, func(ctx context.Context, j *river.Job[job]) error {
		switch j.Args.Tenant {
		case "fails":
			return errors.New("a failure of its own")
		case "panics":
			panic("a panic of its own")
		case "too long":
			<-ctx.Done()
			return ctx.Err()
		case "cancels":
			s, err := caps.Inspect(ctx, "k-cancels")
			if err != nil || len(s.Holders) != 1 {
				return fmt.Errorf("%+v, %w", s, err)
			}
			if err := caps.Revoke(ctx, "k-cancels", s.Holders[0].ID, "a test"); err != nil {
				return err
			}
			<-ctx.Done()
			return river.JobCancel(errors.New("the job's own wish"))
		}
		return nil
	})
	start(t, client)
	for tenant, want := range map[string]struct {
		state rivertype.JobState
		text  string
	}{
		"fails":    {rivertype.JobStateDiscarded, "a failure of its own"},
		"panics":   {rivertype.JobStateDiscarded, "a panic of its own"},
		"two":      {rivertype.JobStateDiscarded, "asks for 2 permits; the limit is 1"},
		"too long": {rivertype.JobStateDiscarded, "longest hold reached"},
		"cancels":  {rivertype.JobStateCancelled, "the job's own wish"},
	} {
		row := await(t, client, insert(t, client, tenant, once).ID, want.state)
		redistest.Check(t, len(row.Errors) == 1 && strings.Contains(row.Errors[0].Error, want.text),
			"%s: errors %+v", tenant, row.Errors)
		s, err := caps.Inspect(t.Context(), "k-"+tenant)
		redistest.Check(t, err == nil && s.InUse == 0, "%s: %d permits in use, %v", tenant, s.InUse, err)
	}
}

// A LimitFor that panics takes nobody's place among those that may wait.
func TestLimitForThatPanics(t *testing.T) {
	broken := true
	limit := func(string) int {
		if broken {
			panic("a bug")
		}
		return 1
	}
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1, LimitFor: limit})
	capped := redistest.Must(rivercap.New(caps, rivercap.Config{
		Key: func(*rivertype.JobRow) string { return tenant }, MaxWaiters: 1, MaxWait: 300 * time.Millisecond,
	}))(t)
	work := func() (err error) {
		defer func() { _ = recover() }() // as River does
		return capped.Work(t.Context(), &rivertype.JobRow{}, func(context.Context) error { return nil })
	}
	for range 2 {
		redistest.NoError(t, work())
	}
	broken = false
	held := redistest.Must(caps.Acquire(t.Context(), tenant))(t)
	began := time.Now()
	redistest.WantErr(t, work(), &rivertype.JobSnoozeError{})
	redistest.Check(t, time.Since(began) >= 300*time.Millisecond, "the job waited for %v; want 300ms", time.Since(began))
	redistest.NoError(t, held.Release())
}

// A client that stops works the jobs that wait with Stop, and not with StopAndCancel. That uses up no attempt.
func TestStops(t *testing.T) {
	_, pool := newDatabase(t)
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	held := redistest.Must(caps.Acquire(t.Context(), tenant))(t)
	cfg := rivercap.Config{MaxWait: time.Minute}
	client := newClient(t, pool, caps, cfg, 10, func(ctx context.Context, j *river.Job[job]) error { return nil })
	start(t, client)
	row := insert(t, client, tenant, once)
	captest.WantState(t, caps, 1, 1)
	redistest.WantErr(t, client.StopAndCancel(t.Context()))
	if row := await(t, client, row.ID, rivertype.JobStateAvailable); row.Attempt != 0 || len(row.Errors) != 0 {
		t.Errorf("attempt %d, errors %v", row.Attempt, row.Errors)
	}
	again := newClient(t, pool, caps, cfg, 10, func(ctx context.Context, j *river.Job[job]) error { return nil })
	start(t, again)
	captest.WantState(t, caps, 1, 1)
	stopped := make(chan error, 1)
	go func() { stopped <- again.Stop(context.Background()) }()
	redistest.WantErr(t, held.Release())
	redistest.WantErr(t, redistest.Get(t, "the stop", stopped))
	await(t, again, row.ID, rivertype.JobStateCompleted)
	captest.WantState(t, caps, 0, 0)
}

// A Redis that hangs holds up no worker for longer than MaxWait, also not by a job beyond MaxWaiters.
func TestHungRedis(t *testing.T) {
	server := redistest.StartServer(t, redistest.Newest(t))
	caps := captest.New(t, server.Client(), semaphore.Config{Limit: 2})
	capped := redistest.Must(rivercap.New(caps, rivercap.Config{
		Key: func(*rivertype.JobRow) string { return tenant }, MaxWaiters: 1, MaxWait: 300 * time.Millisecond,
	}))(t)
	work := func() error {
		return capped.Work(context.Background(), &rivertype.JobRow{}, func(context.Context) error { return nil })
	}
	redistest.WantErr(t, work())
	server.Pause()
	began, ends := time.Now(), make(chan error, 2)
	for range 2 {
		go func() { ends <- work() }()
	}
	for range 2 {
		redistest.WantErr(t, redistest.Get(t, "the end of a job", ends), &rivertype.JobSnoozeError{})
	}
	redistest.Check(t, !redistest.Over(began, 2*time.Second), "the jobs held up their workers for %v", time.Since(began))
	server.Resume()
}

// While Redis cannot be asked, a job is snoozed for the UnavailableDelay and up to half of it. TestRefusedAndLostJobs
// shows that a snooze loses no job and uses up no attempt.
func TestUnavailable(t *testing.T) {
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	redistest.WantErr(t, caps.Close(t.Context()))
	capped := redistest.Must(rivercap.New(caps, rivercap.Config{
		Key: func(*rivertype.JobRow) string { return tenant }, UnavailableDelay: time.Minute,
	}))(t)
	var snooze *rivertype.JobSnoozeError
	err := capped.Work(t.Context(), &rivertype.JobRow{}, func(context.Context) error { return nil })
	redistest.CheckNow(t, errors.As(err, &snooze), "%v; want a snooze", err)
	redistest.Between(t, snooze.Duration, time.Minute, 90*time.Second, "it is snoozed for %v")
}
