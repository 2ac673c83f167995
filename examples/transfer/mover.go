package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
)

// The reports of a mover.
const (
	moved  = "moved"
	gaveUp = "gave-up"
	done   = "done"
)

// patience is how long a mover waits for a lock, by the way in which it takes locks.
// One by one it may wait for somebody who waits for it, so it had better give up soon.
var patience = map[string]time.Duration{oneByOne: 100 * time.Millisecond, atOnce: 10 * time.Second}

// shop is the stock of the warehouses, each behind a lock. A guard refuses what a
// holder writes after its lock has gone to another.
type shop struct {
	locks *mutex.Mutex
	stock *mutex.Guard
}

func open(rdb redis.UniversalClient, name, way string) (*shop, error) {
	locks, err := mutex.New(rdb, mutex.Config{Name: name, MaxWait: patience[way]})
	if err != nil {
		return nil, err
	}
	stock, err := mutex.NewGuard(rdb, mutex.GuardConfig{Name: name})
	return &shop{locks, stock}, err
}

func (s *shop) get(ctx context.Context, warehouse string) (int, error) {
	text, _, err := s.stock.Get(ctx, warehouse)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (s *shop) set(ctx context.Context, warehouse string, token uint64, n int) error {
	return s.stock.Set(ctx, warehouse, token, strconv.Itoa(n), time.Hour)
}

// move takes one piece from a warehouse to the other. Its caller holds both locks.
func (s *shop) move(ctx context.Context, from, to string, fromToken, toToken uint64) error {
	have, err := s.get(ctx, from)
	if err != nil {
		return err
	}
	more, err := s.get(ctx, to)
	if err != nil {
		return err
	}
	if err := s.set(ctx, from, fromToken, have-1); err != nil {
		return err
	}
	return s.set(ctx, to, toToken, more+1)
}

// moveOneByOne takes the locks in the order of the transfer.
func (s *shop) moveOneByOne(ctx context.Context, from, to string) error {
	return s.locks.Do(ctx, from, func(ctx context.Context, first uint64) error {
		return s.locks.Do(ctx, to, func(ctx context.Context, second uint64) error {
			return s.move(ctx, from, to, first, second)
		})
	})
}

// moveAtOnce takes both locks, whichever way the transfer goes.
func (s *shop) moveAtOnce(ctx context.Context, from, to string) error {
	return multi.Do(ctx, func(ctx context.Context, l *multi.Lease) error {
		return s.move(ctx, from, to, l.Token(s.locks, from), l.Token(s.locks, to))
	}, multi.Lock(s.locks, from), multi.Lock(s.locks, to))
}

func mover(ctx context.Context, c *demo.Child) error {
	s, err := open(c.Redis, c.Run, c.Args[0])
	if err != nil {
		return err
	}
	defer demo.Close(ctx, s.locks)
	move := s.moveAtOnce
	if c.Args[0] == oneByOne {
		move = s.moveOneByOne
	}
	for n := 0; n < transfers && ctx.Err() == nil; {
		way := rand.Perm(len(warehouses))
		err := move(ctx, warehouses[way[0]], warehouses[way[1]])
		switch {
		case err == nil:
			n++
			c.Report(demo.Event{Kind: moved})
		case errors.Is(err, leasehold.ErrBusy): // each of two waits for what the other holds
			c.Report(demo.Event{Kind: gaveUp})
		case ctx.Err() == nil:
			return err
		}
	}
	c.Report(demo.Event{Kind: done})
	<-ctx.Done()
	return nil
}
