package certmagiclock_test

import (
	"log"

	"github.com/caddyserver/certmagic"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/integrations/certmagiclock"
	"github.com/leasehold-go/leasehold/mutex"
)

// All servers that share the directory obtain each certificate once.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	locks, err := mutex.New(rdb, mutex.Config{Name: "certificates"})
	if err != nil {
		log.Fatal(err)
	}
	// Any other certmagic.Storage will do. Its own locks are not used.
	storage, err := certmagiclock.New(&certmagic.FileStorage{Path: "/var/lib/certificates"}, locks)
	if err != nil {
		log.Fatal(err)
	}
	certmagic.Default.Storage = storage
	// Output:
}
