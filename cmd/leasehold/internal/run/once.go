package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold"
	leases "github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

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
