package guide

import (
	"context"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// connect returns a client of an embedded server, so that the examples run
// anywhere.
func connect() (*redis.Client, func()) {
	srv := miniredis.NewMiniRedis()
	srv.ClockTTL(true)
	if err := srv.Start(); err != nil {
		log.Fatal(err)
	}
	rdb := boundedClient(srv.Addr())
	return rdb, func() { _ = rdb.Close(); srv.Close() }
}

// The code of the README, as three programs would run it.
func Example() {
	rdb, stop := connect()
	defer stop()
	ctx := context.Background()

	if err := exportUnderCap(ctx, rdb, "acme"); err != nil {
		log.Fatal(err)
	}
	if err := shipOrder(ctx, rdb, "order-7"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(rdb.Get(ctx, "leasehold:grd:{order-states:order-7}:value").Val())
	for range 2 {
		user, err := cachedUser(ctx, rdb, "7")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user.Name)
	}
	// Output:
	// exporting for acme
	// shipped
	// asking the database for 7
	// Ada
	// Ada
}
