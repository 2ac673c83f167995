package run

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

// Options say what to run, and under which lease.
type Options struct {
	Mutex, Semaphore string // the family: one of both
	Key              string
	Prefix           string
	Limit            int           // of a semaphore
	Wait             time.Duration // for the lease; negative = without end
	TTL              time.Duration
	Grace            time.Duration // from SIGTERM to SIGKILL, at most TTL/3
	Kill             bool          // SIGKILL alone
	Program          []string
}

// lease is what a lock and a permit have in common.
type lease interface {
	Context() context.Context
	Deadline() time.Time
	ID() string
	Extend(ctx context.Context, ttl time.Duration) error
}

// held is a lease with what differs between a lock and a permit.
type held struct {
	lease
	token   uint64 // 0 = a permit has none
	release func() error
}

// handle is a family's handle.
type handle struct {
	acquire func(ctx context.Context, try bool) (*held, error)
	// hasRoom reports whether there is room for some more permits beside those in use, the
	// caller's among them; nil: of a lock there never is.
	hasRoom func(ctx context.Context, permits int) bool
	close   func(context.Context) error
}

// open makes the handle. Its errors are the user's.
func open(rdb redis.UniversalClient, o Options) (*handle, error) {
	if o.Mutex != "" {
		m, err := mutex.New(rdb, mutex.Config{Name: o.Mutex, Prefix: o.Prefix, TTL: o.TTL})
		if err != nil {
			return nil, err
		}
		return &handle{close: m.Close, acquire: func(ctx context.Context, try bool) (*held, error) {
			lock := m.Lock
			if try {
				lock = m.TryLock
			}
			l, err := lock(ctx, o.Key)
			if err != nil {
				return nil, err
			}
			return &held{lease: l, token: l.Token(), release: l.Unlock}, nil
		}}, nil
	}
	s, err := semaphore.New(rdb, semaphore.Config{Name: o.Semaphore, Prefix: o.Prefix, TTL: o.TTL, Limit: o.Limit})
	if err != nil {
		return nil, err
	}
	hasRoom := func(ctx context.Context, permits int) bool {
		state, err := s.Inspect(ctx, o.Key)
		return err == nil && state.InUse+permits <= state.Limit
	}
	return &handle{close: s.Close, hasRoom: hasRoom, acquire: func(ctx context.Context, try bool) (*held, error) {
		acquire := s.Acquire
		if try {
			acquire = s.TryAcquire
		}
		l, err := acquire(ctx, o.Key)
		if err != nil {
			return nil, err
		}
		return &held{lease: l, release: l.Release}, nil
	}}, nil
}

// errWaitOver is the cause of a wait that took as long as it may.
var errWaitOver = errors.New("the time to wait is over")

// take waits for the lease as long as it may, and until no program under a lease that was
// revoked before runs any more. Where stop is closed its error is nil, and there is no
// lease.
func take(h *handle, p predecessors, o Options, stop <-chan struct{}) (*held, error) {
	// The lease's Context comes from this ctx, so that it must not end once the
	// lease is held: no time-out of the wait may reach it.
	ctx, cancel := context.WithCancelCause(context.Background())
	inTime := func() bool { return true }
	if o.Wait > 0 {
		timer := time.AfterFunc(o.Wait, func() { cancel(errWaitOver) })
		defer timer.Stop()
		inTime = timer.Stop
	}
	taken := make(chan struct{})
	defer close(taken)
	go func() {
		select {
		case <-stop:
			cancel(errStopped)
		case <-taken:
		}
	}()
	l, err := h.acquire(ctx, o.Wait == 0)
	if err == nil {
		err = p.await(l.Context(), h, o.Wait == 0)
		if err == nil && !inTime() {
			err = errWaitOver
		}
		if err != nil {
			_ = p.giveBack(l)
		}
	}
	switch {
	case err == nil:
		if err := lengthen(l, o); err != nil {
			_ = p.giveBack(l)
			return nil, err
		}
		return l, nil
	case context.Cause(ctx) == errStopped:
		return nil, nil
	case errors.Is(err, leasehold.ErrLost):
		return nil, failed(CodeLost, err)
	case errors.Is(err, errWaitOver):
		return nil, failed(CodeConflict, leasehold.ErrBusy)
	case errors.Is(err, leasehold.ErrUnavailable):
		return nil, failed(CodeUnreachable, err)
	case errors.Is(err, leasehold.ErrBusy), errors.Is(err, leasehold.ErrQueueFull):
		return nil, failed(CodeConflict, err)
	}
	return nil, failed(CodeTool, err)
}

// lengthen makes a lease as long as it is to be. What another process handed over
// lasts two seconds until its first renewal: the grace may be longer than that, and
// then the guard would stop the program before it starts.
func lengthen(l *held, o Options) error {
	if time.Until(l.Deadline()) > o.TTL*2/3 {
		return nil
	}
	err := l.Extend(context.Background(), o.TTL)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, leasehold.ErrLost):
		return failed(CodeLost, err)
	}
	return failed(CodeUnreachable, err)
}

var errStopped = errors.New("stopped by a signal")

// environment is the program's: this process's, and what the lease says.
func (l *held) environment(env []string, key string) []string {
	kept := make([]string, 0, len(env)+2)
	for _, e := range env {
		// What a run around this one said does not hold for this lease.
		if !hasName(e, "LEASEHOLD_TOKEN") && !hasName(e, "LEASEHOLD_KEY") {
			kept = append(kept, e)
		}
	}
	kept = append(kept, "LEASEHOLD_KEY="+key)
	if l.token != 0 {
		kept = append(kept, "LEASEHOLD_TOKEN="+strconv.FormatUint(l.token, 10))
	}
	return kept
}

func hasName(e, name string) bool {
	return len(e) > len(name) && e[len(name)] == '=' && e[:len(name)] == name
}
