package redistest

import (
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

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
