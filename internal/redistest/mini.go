package redistest

import (
	"log"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/embedded"
)

// Mini starts an embedded server on a TCP port, where keys expire with the clock as they do on real servers.
func Mini(tb testing.TB) *miniredis.Miniredis {
	tb.Helper()
	m := embedded.New(tb)
	Require(tb, m.StartAddr("127.0.0.1:0"), nil, "start miniredis: %v")
	return m
}

// MiniClient makes a client of an embedded server of its own, closed at the end of the test.
func MiniClient(tb testing.TB, mod ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return newClient(tb, Mini(tb).Addr(), mod)
}

// Bubble makes an embedded server and clients for use inside a testing/synctest
// bubble, whose clock the server follows. It must be called inside the bubble.
//
// A mod that sets Dialer can put a faulty network in between; it gets a connection from the server's Dial.
func Bubble(tb testing.TB) (*miniredis.Miniredis, func(mod ...func(*redis.Options)) *redis.Client) {
	tb.Helper()
	m := embedded.New(tb)
	client := func(mod ...func(*redis.Options)) *redis.Client {
		inMemory := func(opt *redis.Options) { *opt = *embedded.Options(m) }
		return newClient(tb, "", append([]func(*redis.Options){inMemory}, mod...))
	}
	return m, client
}

// Connect returns a client of an embedded server, so that the Example functions run anywhere. A
// program uses a client of its own: redis.NewClient, NewFailoverClient or NewClusterClient.
func Connect() (rdb *redis.Client, stop func()) {
	srv := miniredis.NewMiniRedis()
	srv.ClockTTL(true)
	if err := srv.Start(); err != nil {
		log.Fatal(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: srv.Addr()})
	return rdb, func() { _ = rdb.Close(); srv.Close() }
}
