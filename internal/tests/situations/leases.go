package situations

import (
	"context"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

const (
	sem = "semaphore"
	mtx = "mutex"
	flt = "singleflight"
)

// Leases are the situations of permits and locks.
var Leases = []Situation{
	{
		Name: "held for three seconds by one, waited for by another",
		Want: map[Told]int{
			{leasehold.EventAcquired, sem, leasehold.OutcomeGranted}:   2,
			{leasehold.EventHoldEnded, sem, leasehold.OutcomeReleased}: 2,
			{leasehold.EventAcquired, sem, leasehold.OutcomeBusy}:      1,
			{leasehold.EventAcquired, sem, leasehold.OutcomeCanceled}:  1,
		},
		run: func(s *stage) {
			h := s.semaphore(semaphore.Config{Limit: 2})
			first, err := h.AcquireN(s.Context(), "k", 2)
			s.must(err)
			if _, err := h.TryAcquire(s.Context(), "k"); err == nil {
				s.Error("TryAcquire got a third permit of two")
			}
			gone, cancel := context.WithTimeout(s.Context(), time.Second)
			defer cancel()
			if _, err := h.Acquire(gone, "k"); err == nil {
				s.Error("Acquire got a third permit of two")
			}
			second := make(chan *semaphore.Lease)
			go func() { l, _ := h.Acquire(s.Context(), "k"); second <- l }()
			time.Sleep(2 * time.Second)
			s.must(first.Release())
			s.must((<-second).Release())
		},
	},
	{
		Name: "renewed, and closed while it is held",
		Want: map[Told]int{
			{leasehold.EventRenewed, mtx, leasehold.OutcomeOK}:       3,
			{leasehold.EventHoldEnded, mtx, leasehold.OutcomeClosed}: 1,
		},
		run: func(s *stage) {
			h := s.mutex(mutex.Config{TTL: 3 * time.Second})
			_, err := h.Lock(s.Context(), "k")
			s.must(err)
			time.Sleep(3500 * time.Millisecond)
		},
	},
	{
		Name: "cut off from Redis for longer than the TTL",
		Want: map[Told]int{
			{leasehold.EventUnavailable, mtx, ""}:                   1,
			{leasehold.EventAvailable, mtx, ""}:                     1,
			{leasehold.EventLeaseEnded, mtx, leasehold.OutcomeLost}: 1,
			{leasehold.EventHoldEnded, mtx, leasehold.OutcomeLost}:  1,
			{leasehold.EventStaleRelease, mtx, ""}:                  1,
		},
		run: func(s *stage) {
			h := s.mutex(mutex.Config{TTL: time.Second})
			l, err := h.Lock(s.Context(), "k")
			s.must(err)
			end := leaseholdtest.Outage(s.a)
			<-l.Context().Done()
			end()
			redistest.Check(s, l.Unlock() != nil, "Unlock of a lost lock returned nil")
		},
	},
	{
		Name: "its key is deleted, which its release finds",
		Want: map[Told]int{
			{leasehold.EventHoldEnded, mtx, leasehold.OutcomeReleased}: 1,
			{leasehold.EventLeaseEnded, mtx, leasehold.OutcomeLost}:    1,
			{leasehold.EventStaleRelease, mtx, ""}:                     1,
		},
		run: func(s *stage) {
			h := s.mutex(mutex.Config{})
			l, err := h.Lock(s.Context(), "k")
			s.must(err)
			s.must(s.a.FlushAll(s.Context()).Err())
			redistest.Check(s, l.Unlock() != nil, "Unlock of a lost lock returned nil")
		},
	},
	{
		Name: "held for as long as MaxHold allows",
		Want: map[Told]int{
			{leasehold.EventLeaseEnded, sem, leasehold.OutcomeMaxHold}: 1,
			{leasehold.EventHoldEnded, sem, leasehold.OutcomeMaxHold}:  1,
		},
		run: func(s *stage) {
			h := s.semaphore(semaphore.Config{MaxHold: 2 * time.Second})
			l, err := h.Acquire(s.Context(), "k")
			s.must(err)
			<-l.Context().Done()
		},
	},
	{
		Name: "granted after its caller has gone",
		Want: map[Told]int{
			{leasehold.EventLateGrant, sem, ""}:                       1,
			{leasehold.EventAcquired, sem, leasehold.OutcomeCanceled}: 1,
		},
		run: func(s *stage) {
			h := s.semaphore(semaphore.Config{})
			l, err := h.Acquire(s.Context(), "warm") // the clock and the script are known
			s.must(err)
			s.must(l.Release())
			ctx, cancel := context.WithCancel(s.Context())
			defer cancel()
			release := s.wire.StallReplies("enter")
			ended := make(chan error)
			go func() { _, err := h.Acquire(ctx, "k"); ended <- err }()
			synctest.Wait()
			cancel()
			redistest.Check(s, <-ended != nil, "Acquire got a lease though its reply was held up")
			release()
		},
	},
}
