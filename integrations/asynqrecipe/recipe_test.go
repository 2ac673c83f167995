package asynqrecipe

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// run enqueues n tasks of one key under a cap of 3 and returns what became of them when all were done.
func run(t *testing.T, n, maxRetry int, maxWait time.Duration, work func(id string) error) (info *asynq.QueueInfo, attempts int64) {
	t.Helper()
	server := redistest.StartServer(t, redistest.Newest(t))
	opt := asynq.RedisClientOpt{Addr: server.Addr()}
	caps := captest.New(t, server.Client(), semaphore.Config{Name: "tasks", Limit: 3})
	var running, done, all atomic.Int64
	enough := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			all.Add(1)
			return next.ProcessTask(ctx, task)
		})
	}, capped(caps, maxWait, func(*asynq.Task) string { return captest.Tenant }))
	mux.HandleFunc("work", func(ctx context.Context, _ *asynq.Task) error {
		redistest.AtMost(t, running.Add(1), 3, "%d tasks run at the same time")
		defer running.Add(-1)
		redistest.Expect(t, context.Cause(ctx), nil, "the ctx of a task has ended: %v")
		id, _ := asynq.GetTaskID(ctx)
		if err := work(id); err != nil {
			return err
		}
		if done.Add(1) == int64(n) {
			close(enough)
		}
		return nil
	})
	cfg := serverConfig()
	cfg.Concurrency, cfg.LogLevel, cfg.TaskCheckInterval, cfg.DelayedTaskCheckInterval = 30, asynq.FatalLevel, 50*time.Millisecond, 200*time.Millisecond
	delay := cfg.RetryDelayFunc
	cfg.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		return min(delay(n, err, task), 2*time.Second) // asynq's own begins with half a minute
	}
	srv := asynq.NewServer(opt, cfg)
	redistest.WantErr(t, srv.Start(mux))
	client, inspector := asynq.NewClient(opt), asynq.NewInspector(opt)
	defer client.Close()
	defer inspector.Close()
	for range n {
		redistest.Must(client.Enqueue(asynq.NewTask("work", nil), asynq.MaxRetry(maxRetry), asynq.Timeout(5*time.Minute)))(t)
	}
	select {
	case <-enough:
	case <-time.After(60 * time.Second):
		t.Errorf("%d of %d tasks are done", done.Load(), n)
	}
	srv.Shutdown()
	s, err := caps.Inspect(t.Context(), captest.Tenant)
	redistest.Check(t, err == nil && s.InUse == 0 && s.Waiting == 0, "%+v, %v", s, err)
	redistest.NoError(t, caps.Close(t.Context()))
	return redistest.Must(inspector.GetQueueInfo("default"))(t), all.Load()
}

// A task without a key needs no permit. The semaphore refuses such a key, and asynq would archive the task.
func TestTaskWithoutAKey(t *testing.T) {
	caps, ran := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1}), false
	task := capped(caps, 0, func(*asynq.Task) string { return "" })(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		ran = true
		return nil
	}))
	redistest.NoError(t, task.ProcessTask(t.Context(), asynq.NewTask("work", nil)))
	redistest.Check(t, ran, "the task did not run")
}

// asynq archives a task whose last attempt fails, before it asks whether that is a failure. So
// the last attempt waits, whatever maxWait is, and none of 500 tasks without a retry is lost.
func TestLastAttemptWaits(t *testing.T) {
	t.Parallel()
	info, attempts := run(t, 500, 0, 0, func(string) error {
		<-time.After(10 * time.Millisecond)
		return nil
	})
	redistest.Check(t, info.Archived == 0 && info.Size == 0 && attempts == 500,
		"%d archived, %d left, %d attempts; want 500 attempts and no more", info.Archived, info.Size, attempts)
}

// Refusals use up no attempt: of 30 tasks with one retry, most are refused first, then each fails
// once, and none is archived.
func TestRefusalUsesUpNoAttempt(t *testing.T) {
	t.Parallel()
	var failed sync.Map
	info, attempts := run(t, 30, 1, 20*time.Millisecond, func(id string) error {
		<-time.After(50 * time.Millisecond)
		if _, before := failed.LoadOrStore(id, true); !before {
			return errors.New("the first run fails")
		}
		return nil
	})
	redistest.Check(t, info.Archived == 0 && info.Size == 0, "%d archived, %d left", info.Archived, info.Size)
	redistest.Check(t, attempts >= 80, "%d attempts of 30 tasks: too few were refused to show anything", attempts)
}
