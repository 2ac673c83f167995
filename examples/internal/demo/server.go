package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Server is the Redis that all processes of a run share.
type Server struct {
	URL   string // never printed: it may hold a password
	Label string
	close func()
}

// Connect finds the server of REDIS_URL, or starts the embedded one, on a TCP
// port so that other processes can use it.
func Connect(ctx context.Context) (*Server, error) {
	if url := os.Getenv("REDIS_URL"); url != "" {
		rdb, err := Client(url)
		if err != nil {
			return nil, err
		}
		defer rdb.Close()
		addr := rdb.Options().Addr
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if err := rdb.Ping(ctx).Err(); err != nil {
			return nil, fmt.Errorf("no answer from the Redis of REDIS_URL, %s: %w", addr, err)
		}
		return &Server{URL: url, Label: "the Redis at " + addr, close: func() {}}, nil
	}

	mini := miniredis.NewMiniRedis()
	// Without its clock keys never expire there, and nothing would ever be
	// taken over.
	mini.ClockTTL(true)
	if err := mini.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start the embedded server: %w", err)
	}
	return &Server{
		URL:   "redis://" + mini.Addr(),
		Label: "an embedded miniredis at " + mini.Addr(),
		close: mini.Close,
	}, nil
}

// Close stops the server, where Connect started it.
func (s *Server) Close() { s.close() }

// Client makes a client for url. Its error does not say what is wrong with the
// URL: the parser's text would quote it, password included.
func Client(url string) (*redis.Client, error) { return client(url, "") }

// client reaches the server by way of a [Link] at the address link, where that
// is not empty.
func client(url, link string) (*redis.Client, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("REDIS_URL is no Redis URL; want redis://[user:password@]host[:port][/database]")
	}
	if link != "" {
		opt.Network, opt.Addr = "tcp", link // TLS still asks for the server's own name
	}
	return redis.NewClient(opt), nil
}
