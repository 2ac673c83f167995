package guide

import (
	"context"
	"fmt"
	"log"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The code of the README, as a program runs it.
func Example() {
	server, stop := redistest.Connect()
	defer stop()
	rdb := boundedClient(server.Options().Addr)
	defer rdb.Close()
	ctx := context.Background()

	exports, err := NewExports(rdb)
	if err != nil {
		log.Fatal(err)
	}
	defer exports.Close(ctx)
	if err := exports.Run(ctx, "acme"); err != nil {
		log.Fatal(err)
	}
	orders, err := NewOrders(rdb)
	if err != nil {
		log.Fatal(err)
	}
	defer orders.Close(ctx)
	if err := orders.Ship(ctx, "order-7"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(rdb.Get(ctx, "leasehold:grd:{order-states:order-7}:value").Val())
	users, err := NewUsers(rdb)
	if err != nil {
		log.Fatal(err)
	}
	defer users.Close(ctx)
	for range 2 {
		user, err := users.Get(ctx, "7")
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
