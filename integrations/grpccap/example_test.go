package grpccap_test

import (
	"context"
	"log"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leasehold-go/leasehold/integrations/grpccap"
	"github.com/leasehold-go/leasehold/semaphore"
)

// At most ten calls of a tenant are handled at the same time, in all processes together.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	caps, err := semaphore.New(rdb, semaphore.Config{Name: "calls", Limit: 10, MaxWaiters: 100})
	if err != nil {
		log.Fatal(err)
	}
	capped, err := grpccap.New(caps, grpccap.Config{
		Key: func(ctx context.Context, method string, req any) string {
			if tenants := metadata.ValueFromIncomingContext(ctx, "tenant"); len(tenants) > 0 {
				return tenants[0]
			}
			return "" // no cap
		},
		Wait: 2 * time.Second, // then ResourceExhausted
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(capped.Unary()), grpc.StreamInterceptor(capped.Stream()))
	server.Stop()
	// Output:
}
