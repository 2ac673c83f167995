// Transfer moves stock between two warehouses, from four processes at once and in
// both directions. First each process locks the warehouse that it takes from, and
// then the other one: two that move in opposite directions wait for each other,
// until one gives up. Then each takes both locks at once.
//
//	go run ./examples/transfer
//
// It uses the Redis or Valkey at REDIS_URL, or an embedded server where that is
// not set. It exits with 1 if stock was lost, or if a caller that took both locks
// at once gave up.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
)

func main() { demo.Main(run, map[string]demo.Role{"mover": mover}) }

const (
	processes = 4
	transfers = 4    // of each process
	begins    = 1000 // pieces in each warehouse
	oneByOne  = "one by one"
	atOnce    = "both at once"
)

var warehouses = []string{"north", "south"}

func run(s *demo.Show) (problems demo.Problems) {
	s.Print("%d processes make %d transfers each between two warehouses.", processes, transfers)
	s.Print("They use %s.\n", s.Server)
	const line = "%-14v %8v %10v %8v"
	s.Print(line, "locked", "gave up", "took", "stock")
	for _, way := range []string{oneByOne, atOnce} {
		gaveUp, took, left := show(s, way)
		s.Print(line, way, gaveUp, took.Round(time.Millisecond), left)
		problems.If(left != len(warehouses)*begins, "%s: the stock is %d; want %d", way, left, len(warehouses)*begins)
		problems.If(way == atOnce && gaveUp > 0, "%s: %d callers gave up", way, gaveUp)
	}
	return problems
}

// show lets a fleet make its transfers. It returns how often a caller waited for too long and began anew, and the stock
// of both warehouses together.
func show(s *demo.Show, way string) (gaveUp int, took time.Duration, stock int) {
	fleet := s.Fleet()
	shop := open(s.Redis, fleet.Run, atOnce) // which is patient
	defer demo.Close(s.Ctx, shop.locks)
	for _, w := range warehouses { // the first token of each
		demo.Check(shop.locks.Do(s.Ctx, w, func(ctx context.Context, token uint64) error { return shop.set(ctx, w, token, begins) }))
	}
	began := time.Now()
	for i := range processes {
		fleet.Start(fmt.Sprint(i), "mover", way)
	}
	for i := range processes {
		gaveUp += fleet.Await(demo.Event{From: fmt.Sprint(i), Kind: done}).Number
	}
	took = time.Since(began)
	for _, w := range warehouses {
		stock += demo.Must(shop.get(s.Ctx, w))
	}
	fleet.Stop()
	return gaveUp, took, stock
}

const done = "done" // the report of a mover that has made its transfers; Number is how often it gave up

// patience is how long a mover waits for a lock, by the way in which it takes locks.
// One by one it may wait for a caller that waits for it, so it had better give up soon.
var patience = map[string]time.Duration{oneByOne: 100 * time.Millisecond, atOnce: 10 * time.Second}

// shop is the stock of the warehouses, each behind a lock. A guard refuses what a
// holder writes after its lock has gone to another.
type shop struct {
	locks *mutex.Mutex
	stock *mutex.Guard
}

func open(rdb redis.UniversalClient, name, way string) *shop {
	locks := demo.Must(mutex.New(rdb, mutex.Config{Name: name, MaxWait: patience[way]}))
	return &shop{locks, demo.Must(mutex.NewGuard(rdb, mutex.GuardConfig{Name: name}))}
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

// errMove is the error of a transfer that had its locks. It must not be repeated: the first half
// may have been written.
var errMove = errors.New("the transfer failed")

// move takes one piece from a warehouse to the other. Its caller holds both locks.
func (s *shop) move(ctx context.Context, from, to string, fromToken, toToken uint64) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", errMove, err)
		}
	}()
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
	s := open(c.Redis, c.Run, c.Args[0])
	defer demo.Close(ctx, s.locks)
	move := s.moveAtOnce
	if c.Args[0] == oneByOne {
		move = s.moveOneByOne
	}
	gaveUp := 0
	for n := 0; n < transfers; {
		way := rand.Perm(len(warehouses))
		err := move(ctx, warehouses[way[0]], warehouses[way[1]])
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			n++
		case errors.Is(err, errMove):
			return err
		case errors.Is(err, leasehold.ErrBusy), // each of two waits for what the other holds
			errors.Is(err, leasehold.ErrUnavailable): // the wait was over before Redis answered
			gaveUp++
		default:
			return err
		}
	}
	c.Report(demo.Event{Kind: done, Number: gaveUp})
	<-ctx.Done()
	return nil
}
