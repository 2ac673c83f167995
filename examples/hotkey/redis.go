package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// server is the Redis that all processes share.
type server struct {
	url   string // never printed: it may hold a password
	label string
	close func()
}

// connect finds the server of REDIS_URL, or starts the embedded one, on a TCP
// port so that other processes can use it.
func connect(ctx context.Context) (server, error) {
	if url := os.Getenv("REDIS_URL"); url != "" {
		rdb, err := client(url)
		if err != nil {
			return server{}, err
		}
		defer rdb.Close()
		addr := rdb.Options().Addr
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if err := rdb.Ping(ctx).Err(); err != nil {
			return server{}, fmt.Errorf("no answer from the Redis of REDIS_URL, %s: %w", addr, err)
		}
		return server{url: url, label: "the Redis at " + addr, close: func() {}}, nil
	}

	mini := miniredis.NewMiniRedis()
	mini.ClockTTL(true) // else nothing would ever expire there
	if err := mini.StartAddr("127.0.0.1:0"); err != nil {
		return server{}, fmt.Errorf("start the embedded server: %w", err)
	}
	return server{
		url:   "redis://" + mini.Addr(),
		label: "an embedded miniredis at " + mini.Addr(),
		close: mini.Close,
	}, nil
}

// client makes a client for url. Its error does not say what is wrong with the
// URL: the parser's text would quote it, password included.
func client(url string) (*redis.Client, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("REDIS_URL is no Redis URL; want redis://[user:password@]host[:port][/database]")
	}
	return redis.NewClient(opt), nil
}
