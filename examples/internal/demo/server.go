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
}

// connect finds the server of REDIS_URL, or starts the embedded one, on a TCP port so that other
// processes can use it.
func (s *Show) connect() {
	url, label := os.Getenv("REDIS_URL"), "the Redis at "
	if url == "" {
		mini := miniredis.NewMiniRedis()
		mini.ClockTTL(true) // else keys never expire there, and nothing would ever be taken over
		Check(mini.StartAddr("127.0.0.1:0"))
		s.Defer(mini.Close)
		url, label = "redis://"+mini.Addr(), "an embedded miniredis at "
	}
	s.Redis = Must(Client(url))
	s.Defer(func() { _ = s.Redis.Close() })
	addr := s.Redis.Options().Addr
	s.Server = &Server{URL: url, Label: label + addr}
	ctx, cancel := context.WithTimeout(s.Ctx, 3*time.Second)
	defer cancel()
	if err := s.Redis.Ping(ctx).Err(); err != nil {
		Check(fmt.Errorf("no answer from the Redis of REDIS_URL, %s: %w", addr, err))
	}
}

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
