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

var program = demo.Program{
	Name:  "transfer",
	Run:   run,
	Roles: map[string]demo.Role{"mover": mover},
}

func main() { program.Main() }

const (
	processes = 4
	transfers = 4 // of each process
	stock     = 1000
	oneByOne  = "one by one"
	atOnce    = "both at once"
)

var warehouses = []string{"north", "south"}

// result is what became of all transfers of one way to lock.
type result struct {
	way    string
	moved  int
	gaveUp int // a caller waited for too long, and began anew
	took   time.Duration
	stock  int // in both warehouses together
}

func run(s *demo.Show) (problems demo.Problems) {
	s.Print("%d processes make %d transfers each between two warehouses.", processes, transfers)
	s.Print("They use %s.\n", s.Server)
	all := []result{show(s, oneByOne), show(s, atOnce)}
	const line = "%-14v %10v %8v %10v %8v"
	s.Print(line, "locked", "transfers", "gave up", "took", "stock")
	for _, r := range all {
		s.Print(line, r.way, r.moved, r.gaveUp, r.took.Round(time.Millisecond), r.stock)
		problems.If(r.moved != processes*transfers, "%s: %d transfers were made; want %d", r.way, r.moved, processes*transfers)
		problems.If(r.stock != len(warehouses)*stock, "%s: the stock is %d; want %d", r.way, r.stock, len(warehouses)*stock)
		problems.If(r.way == atOnce && r.gaveUp > 0, "%s: %d callers gave up", r.way, r.gaveUp)
	}
	return problems
}

// show lets a fleet make its transfers.
func show(s *demo.Show, way string) result {
	fleet := s.Fleet()
	shop := open(s.Redis, fleet.Run, way)
	defer demo.Close(s.Ctx, shop.locks)
	for _, w := range warehouses { // the first token of each
		demo.Check(shop.locks.Do(s.Ctx, w, func(ctx context.Context, token uint64) error { return shop.set(ctx, w, token, stock) }))
	}
	r := result{way: way}
	began := time.Now()
	for i := range processes {
		fleet.Start(fmt.Sprint(i), "mover", way)
	}
	for i := range processes {
		fleet.Await(demo.Event{From: fmt.Sprint(i), Kind: done})
	}
	r.took = time.Since(began)
	for _, e := range fleet.Events() {
		switch e.Kind {
		case moved:
			r.moved++
		case gaveUp:
			r.gaveUp++
		}
	}
	for _, w := range warehouses {
		r.stock += demo.Must(shop.get(s.Ctx, w))
	}
	fleet.Stop()
	return r
}

// The reports of a mover.
const (
	moved  = "moved"
	gaveUp = "gave-up"
	done   = "done"
)

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
	for n := 0; n < transfers && ctx.Err() == nil; {
		way := rand.Perm(len(warehouses))
		err := move(ctx, warehouses[way[0]], warehouses[way[1]])
		switch {
		case err == nil:
			n++
			c.Report(demo.Event{Kind: moved})
		case ctx.Err() != nil:
		case errors.Is(err, errMove):
			return err
		case errors.Is(err, leasehold.ErrBusy), // each of two waits for what the other holds
			errors.Is(err, leasehold.ErrUnavailable): // the wait was over before Redis answered
			c.Report(demo.Event{Kind: gaveUp})
		default:
			return err
		}
	}
	c.Report(demo.Event{Kind: done})
	<-ctx.Done()
	return nil
}
