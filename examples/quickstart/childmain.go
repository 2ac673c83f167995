package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

// childMain is main in a child: role, number and the run's name as arguments,
// the server in REDIS_URL.
func childMain(args []string) int {
	if len(args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./examples/quickstart (it takes no arguments)")
		return 2
	}
	num, err := strconv.Atoi(args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	rdb, err := demo.Client(os.Getenv("REDIS_URL"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer rdb.Close()

	ctx, orders := obey()
	roles := map[string]func(context.Context, *redis.Client, string, int, <-chan string) error{
		"worker": worker,
		"writer": writer,
	}
	role := roles[args[0]]
	if role == nil {
		fmt.Fprintf(os.Stderr, "no role %q\n", args[0])
		return 2
	}
	if err := role(ctx, rdb, args[2], num, orders); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// obey reads the parent's orders from stdin. The end of stdin ends ctx: the
// parent closed it, or died, in which case the kernel did.
func obey() (ctx context.Context, orders <-chan string) {
	ctx, stop := context.WithCancel(context.Background())
	got := make(chan string, 1)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			got <- in.Text()
		}
		stop()
		time.Sleep(4 * time.Second)
		os.Exit(3) // whatever it hangs on, it does not outlive its parent by much
	}()
	return ctx, got
}
