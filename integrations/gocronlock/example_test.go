package gocronlock_test

import (
	"context"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/integrations/gocronlock"
	"github.com/leasehold-go/leasehold/mutex"
)

// One host of the fleet makes the report of each hour.
func scheduleReport(rdb redis.UniversalClient, scheduler gocron.Scheduler, report func(ctx context.Context, hour string) error) error {
	locks, err := mutex.New(rdb, mutex.Config{Name: "cron"})
	if err != nil {
		return err
	}
	task, err := gocronlock.Task(locks, "report", gocronlock.Config{Slot: gocronlock.Every(time.Hour)},
		func(ctx context.Context, token uint64) error {
			return report(ctx, gocronlock.SlotOf(ctx)) // ctx ends before another host gets the lock
		})
	if err != nil {
		return err
	}
	_, err = scheduler.NewJob(gocron.CronJob("0 * * * *", false), task)
	return err
}

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = scheduler.Shutdown() }()
	if err := scheduleReport(rdb, scheduler, func(context.Context, string) error { return nil }); err != nil {
		log.Fatal(err)
	}
	// Output:
}
