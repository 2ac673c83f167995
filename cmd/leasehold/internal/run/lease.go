package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	leases "github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

// Options say what to run, and under which lease.
type Options struct {
	Mutex, Semaphore string // the family: one of both
	Quorum           bool   // several servers decide the lock
	Key              string
	Once             string        // the slot of a run that is completed once, under a lock; "": none
	Keep             time.Duration // how long the slot's completion is remembered
	Prefix           string
	Limit            int           // of a semaphore
	Wait             time.Duration // for the lease; negative = without end
	TTL              time.Duration
	Grace            time.Duration // from SIGTERM to SIGKILL, at most TTL/3
	Lost             string        // LostTerm, LostKill or LostWarn
	Program          []string
}

// What becomes of the program when its lease ends.
const (
	LostTerm = "term" // SIGTERM, and SIGKILL after the grace
	LostKill = "kill" // SIGKILL alone
	LostWarn = "warn" // it goes on
)

type lease interface {
	Context() context.Context
	Deadline() time.Time
	ID() string
	Extend(ctx context.Context, ttl time.Duration) error
}

// held is a lease with what differs between a lock and a permit.
type held struct {
	lease
	token     uint64 // 0 = a permit has none
	succeeded bool   // the program has ended well, under the lease
	release   func() error
}

// family is what a key belongs to, as the tool uses it.
type family struct {
	rdbs    []redis.UniversalClient
	stream  string // the audit stream of the key: see running
	acquire func(ctx context.Context, try bool) (*held, error)
	// hasRoom reports whether there is room for some more permits beside those in use, the
	// caller's among them; nil: of a lock there never is.
	hasRoom func(ctx context.Context, permits int) bool
	handle  interface{ Close(context.Context) error }
}

// open makes the handle. Its errors are the user's.
func (f *family) open(o Options) error {
	names := keys.Family{Prefix: o.Prefix, Kind: keys.Mutex, Name: o.Mutex}
	switch {
	case o.Quorum:
		names.Kind = keys.Quorum
	case o.Mutex == "":
		names.Kind, names.Name = keys.Semaphore, o.Semaphore
	}
	key, err := names.Resource(o.Key)
	if err != nil {
		return err
	}
	f.stream = key.Part("audit")
	if o.Mutex != "" {
		cfg := mutex.Config{Name: o.Mutex, Prefix: o.Prefix, TTL: o.TTL}
		var m *mutex.Mutex
		if o.Quorum {
			m, err = mutex.NewQuorum(f.rdbs, cfg)
		} else {
			m, err = mutex.New(f.rdbs[0], cfg)
		}
		f.handle = m
		f.acquire = func(ctx context.Context, try bool) (*held, error) {
			if o.Once != "" {
				return takeOnce(ctx, m, o, try)
			}
			lock := m.Lock
			if try {
				lock = m.TryLock
			}
			l, err := lock(ctx, o.Key)
			if err != nil {
				return nil, err
			}
			return &held{lease: l, token: l.Token(), release: l.Unlock}, nil
		}
		return err
	}
	s, err := semaphore.New(f.rdbs[0], semaphore.Config{Name: o.Semaphore, Prefix: o.Prefix, TTL: o.TTL, Limit: o.Limit})
	f.handle = s
	f.hasRoom = func(ctx context.Context, permits int) bool {
		state, err := s.Inspect(ctx, o.Key)
		return err == nil && state.InUse+permits <= state.Limit
	}
	f.acquire = func(ctx context.Context, try bool) (*held, error) {
		acquire := s.Acquire
		if try {
			acquire = s.TryAcquire
		}
		l, err := acquire(ctx, o.Key)
		if err != nil {
			return nil, err
		}
		return &held{lease: l, release: l.Release}, nil
	}
	return err
}

// environment is the program's: this process's, and what the lease says. What a run around this
// one said does not hold for this lease.
func (l *held) environment(env []string, key string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		return strings.HasPrefix(e, "LEASEHOLD_TOKEN=") || strings.HasPrefix(e, "LEASEHOLD_KEY=")
	})
	env = append(env, "LEASEHOLD_KEY="+key)
	if l.token != 0 {
		env = append(env, "LEASEHOLD_TOKEN="+strconv.FormatUint(l.token, 10))
	}
	return env
}

var (
	// errComplete says that the slot was complete before, and nothing ran.
	errComplete = errors.New("the slot is complete")
	errFailed   = errors.New("the program failed")
)

// takeOnce waits for the lock of a run that is completed once. The function that DoOnce
// runs under the lock only waits for the program.
func takeOnce(ctx context.Context, m *mutex.Mutex, o Options, try bool) (*held, error) {
	do := m.DoOnce
	if try {
		do = m.TryDoOnce
	}
	begun, ended, outcome := make(chan *held, 1), make(chan error, 1), make(chan error, 1)
	go func() {
		ran, err := do(ctx, o.Key, o.Once, o.Keep, func(ctx context.Context, token uint64) error {
			begun <- &held{lease: leases.Above(ctx), token: token}
			return <-ended
		})
		if !ran && err == nil {
			err = errComplete
		}
		outcome <- err
	}()
	select {
	case err := <-outcome:
		return nil, err
	case l := <-begun:
		l.release = func() error {
			if l.succeeded {
				ended <- nil
				err := <-outcome
				if errors.Is(err, leasehold.ErrUnavailable) {
					err = failed(CodeUnreachable, fmt.Errorf("the program has ended well, and it is not known whether its slot is complete: %w", err))
				}
				return err
			}
			ended <- errFailed
			if err := <-outcome; errors.Is(err, leasehold.ErrLost) {
				return err
			}
			return nil
		}
		return l, nil
	}
}
