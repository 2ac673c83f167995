// Package certmagiclock gives a storage of CertMagic the locks of a mutex, so that a fleet of
// servers obtains each certificate once.
//
//	storage, err := certmagiclock.New(files, locks) // files is any certmagic.Storage
//	…
//	certmagic.Default.Storage = storage
//
// It needs CertMagic 0.25.1 or later. docs/integrations.md says what happens when a lock is lost.
package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/mutex"
)

// Storage is a certmagic.Storage whose locks are those of a mutex. It is also a
// certmagic.TryLocker and a certmagic.LockLeaseRenewer. It is safe for concurrent use.
type Storage struct {
	certmagic.Storage // its locks are not used
	mutex             *mutex.Mutex

	mu   sync.Mutex
	held map[string][]*mutex.Lock // by name, the oldest first; one for each Unlock that is due
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// New returns a Storage that keeps its files in storage and takes its locks from m. All servers that share the files
// must use a mutex of the same family. The TTL of m is how long the name of a crashed server stays locked. Without a
// MaxWait of m, a server waits for another one's attempts for as long as they take: CertMagic does not try again to
// obtain a new name after an error of Lock. New's error matches leasehold.ErrInvalid. The caller keeps both, and closes m
// after CertMagic has stopped.
func New(storage certmagic.Storage, m *mutex.Mutex) (*Storage, error) {
	if err := errors.Join(
		keys.Unless(storage != nil, "storage", "is nil; want a certmagic.Storage"),
		keys.Unless(m != nil, "m", "is nil; want a mutex of mutex.New"),
	); err != nil {
		return nil, fmt.Errorf("leasehold: certmagiclock: %w", err)
	}
	return &Storage{Storage: storage, mutex: m, held: make(map[string][]*mutex.Lock)}, nil
}

// String returns what the wrapped storage's own String method does, or else its type. CertMagic logs its storage, and
// a field of that may be a password.
func (s *Storage) String() string {
	if named, ok := s.Storage.(fmt.Stringer); ok {
		return named.String()
	}
	return fmt.Sprintf("%T", s.Storage)
}

// Lock waits for the lock of name, first come, first served. ctx and the mutex's MaxWait bound
// the wait. The errors are those of Mutex.Lock. It costs one round trip.
func (s *Storage) Lock(ctx context.Context, name string) error {
	l, err := s.mutex.Lock(ctx, name)
	if err == nil {
		s.add(name, l)
	}
	return err
}

func (s *Storage) add(name string, l *mutex.Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = append(s.held[name], l)
}

// TryLock takes the lock of name if it is free, and reports whether it did. The errors are those
// of Mutex.TryLock but leasehold.ErrBusy. It costs one round trip.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	l, err := s.mutex.TryLock(ctx, name)
	switch {
	case err == nil:
		s.add(name, l)
	case errors.Is(err, leasehold.ErrBusy):
		return false, nil
	}
	return err == nil, err
}

// Unlock gives the lock of name back. If this Storage has several, because one was lost and another goroutine took the
// next, it gives back the oldest: the newest may be at work. A lock that was lost needs no Unlock, so that is no error.
// After leasehold.ErrUnavailable the lock is given back in the background. leasehold.ErrReleased says that there is no
// lock of name. It costs one round trip. ctx has no effect.
func (s *Storage) Unlock(_ context.Context, name string) error {
	s.mu.Lock()
	locks := s.held[name]
	if len(locks) == 0 {
		s.mu.Unlock()
		return fmt.Errorf("leasehold: certmagiclock: unlock %s: %w", keys.Escape(name), leasehold.ErrReleased)
	}
	if len(locks) == 1 {
		delete(s.held, name)
	} else {
		s.held[name] = locks[1:]
	}
	s.mu.Unlock()
	return unlock(locks[0])
}

func unlock(l *mutex.Lock) error {
	if err := l.Unlock(); !errors.Is(err, leasehold.ErrLost) {
		return err
	}
	return nil
}

// RenewLockLease makes sure that the lock of name is held, before another attempt to obtain a
// certificate. If the lock was lost since the last one, it is taken again, unless another
// process holds it: then the error matches leasehold.ErrBusy, and CertMagic tries again later.
//
// The duration has no effect, because the lock is renewed in the background. A lock that was
// extended by so much would block the name of a crashed server for minutes. RenewLockLease
// costs one round trip, and one more if the lock was lost.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	locks := slices.Clone(s.held[name])
	s.mu.Unlock()
	if len(locks) == 0 {
		return fmt.Errorf("leasehold: certmagiclock: renew %s: %w", keys.Escape(name), leasehold.ErrReleased)
	}
	for _, l := range slices.Backward(locks) {
		// The shortest extension shortens nothing, and tells whether the lock is still held.
		err := l.Extend(ctx, 100*time.Millisecond)
		if !errors.Is(err, leasehold.ErrLost) && !errors.Is(err, leasehold.ErrReleased) {
			return err
		}
	}
	again, err := s.mutex.TryLock(ctx, name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	newest := len(s.held[name]) - 1
	if newest < 0 { // it was unlocked meanwhile
		s.mu.Unlock()
		return unlock(again)
	}
	lost := s.held[name][newest]
	s.held[name][newest] = again
	s.mu.Unlock()
	return unlock(lost)
}
