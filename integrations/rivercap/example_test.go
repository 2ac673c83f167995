package rivercap_test

import (
	"encoding/json"
	"log"

	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/leasehold-go/leasehold/integrations/rivercap"
	"github.com/leasehold-go/leasehold/semaphore"
)

// At most three jobs of a tenant run at the same time, in all processes together.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	caps, err := semaphore.New(rdb, semaphore.Config{Name: "jobs", Limit: 3})
	if err != nil {
		log.Fatal(err)
	}
	capped, err := rivercap.New(caps, rivercap.Config{
		Key: func(job *rivertype.JobRow) string {
			var args struct{ Tenant string }
			_ = json.Unmarshal(job.EncodedArgs, &args)
			return args.Tenant // "": no cap
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = &river.Config{ // for river.NewClient
		Middleware: []rivertype.Middleware{capped},
		Queues:     map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 50}},
		Workers:    river.NewWorkers(),
	}
	// Output:
}
