package guide

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdtest"
)

// Three processes, four nights: in the second one there is no Redis at the job's hour, and in the third one the
// first run fails.
func TestNightlyRunsOncePerNight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now() // midnight UTC, as always in a bubble
		var mu sync.Mutex
		started, completed := map[string]int{}, map[string]int{}
		job := func(_ context.Context, day string) error {
			mu.Lock()
			defer mu.Unlock()
			if started[day]++; day == "2000-01-03" && started[day] == 1 {
				return errors.New("the first run fails")
			}
			completed[day]++
			return nil
		}
		processes := leaseholdtest.Clients(t, 3)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, rdb := range processes {
			n := redistest.Must(NewNightly(rdb, 3*time.Hour, job))(t)
			defer n.locks.Close(t.Context())
			all.Go(func() {
				for ; ctx.Err() == nil; time.Sleep(10 * time.Minute) { // all at the same moment
					_ = n.RunIfDue(ctx, time.Now())
				}
			})
		}
		time.Sleep(time.Until(began.Add(26 * time.Hour)))
		for _, rdb := range processes {
			time.AfterFunc(2*time.Hour, leaseholdtest.Outage(rdb))
		}
		time.Sleep(time.Until(began.Add(76 * time.Hour)))
		stop()
		all.Wait()
		// The day before the first night is due at once: it is made up for, too.
		want := map[string]int{"1999-12-31": 1, "2000-01-01": 1, "2000-01-02": 1, "2000-01-03": 1, "2000-01-04": 1}
		redistest.Check(t, maps.Equal(completed, want), "completed %v; want each once", completed)
		redistest.Expect(t, started["2000-01-03"], 2, "%d starts in the third night; want two")
	})
}
