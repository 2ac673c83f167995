package networks_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

func init() { redistest.RegisterChild("networks-holder", holder) }

// holder is a process that holds many keys until it reads a line. Its arguments are the address
// of the server and the number of keys.
func holder(args []string) int {
	n, err1 := strconv.Atoi(args[1])
	rdb := redis.NewClient(&redis.Options{Addr: args[0], PoolSize: 20})
	m, err2 := mutex.New(rdb, mutex.Config{Name: "net", TTL: 120 * time.Second})
	if err := errors.Join(err1, err2); err != nil {
		fmt.Println(err)
		return 1
	}
	var all sync.WaitGroup
	var failed failures
	for i := range n {
		all.Go(func() {
			_, err := m.Lock(context.Background(), fmt.Sprint("key", i))
			failed.add(err)
		})
	}
	all.Wait()
	if failed.n.Load() > 0 {
		fmt.Println(*failed.first.Load())
		return 1
	}
	fmt.Println("held")
	bufio.NewScanner(os.Stdin).Scan() // or the end of the test
	_ = m.Close(context.Background())
	return 0
}

// dialThrough dials a Cluster's nodes through their networks.
func dialThrough(networks *sync.Map) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if relay, ok := networks.Load(addr); ok {
			addr = relay.(*redistest.Relay).Addr()
		}
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	}
}
