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

// Three processes, four nights: the second one has no Redis at the job's hour,
// and in the third one the process that runs the job crashes in the middle.
func TestNightlyRunsOncePerNight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 20 * time.Minute
		began := time.Now() // midnight UTC, as always in a bubble
		night := func(n int, at time.Duration) time.Time { return began.Add(time.Duration(n)*24*time.Hour + at) }
		processes := leaseholdtest.Clients(t, 3)
		var mu sync.Mutex
		started, completed, crashed := map[string]int{}, map[string]int{}, 0
		finishedAt := map[string]time.Time{}
		var all sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for i, rdb := range processes {
			ctx, crash := context.WithCancel(ctx)
			n, err := NewNightly(rdb, 3*time.Hour, func(ctx context.Context, day string) error {
				mu.Lock()
				started[day]++
				mustCrash := day == "2000-01-03" && crashed == 0
				if mustCrash {
					crashed++
				}
				mu.Unlock()
				if mustCrash {
					time.Sleep(took / 2)
					crash()
					_ = rdb.Close()
					return errors.New("crashed")
				}
				select {
				case <-time.After(took):
				case <-ctx.Done():
					return ctx.Err()
				}
				mu.Lock()
				defer mu.Unlock()
				completed[day]++
				finishedAt[day] = time.Now()
				return nil
			})
			redistest.WantErr(t, err)
			defer n.locks.Close(t.Context())
			all.Go(func() {
				time.Sleep(time.Duration(i) * 7 * time.Second)
				for minute := time.NewTicker(time.Minute); ; {
					select {
					case now := <-minute.C:
						if now.Hour() < 5 || now.Minute() == 0 { // by day nothing is due, and once per hour shows it
							_ = n.RunIfDue(ctx, now)
						}
					case <-ctx.Done():
						return
					}
				}
			})
		}
		time.Sleep(time.Until(night(1, 2*time.Hour+50*time.Minute)))
		var ends []func()
		for _, rdb := range processes {
			ends = append(ends, leaseholdtest.Outage(rdb))
		}
		time.Sleep(time.Until(night(1, 4*time.Hour+10*time.Minute)))
		for _, end := range ends {
			end()
		}
		time.Sleep(time.Until(night(3, 12*time.Hour)))
		stop()
		all.Wait()

		// The day before the first night is due at once: it is made up for, too.
		want := map[string]int{"1999-12-31": 1, "2000-01-01": 1, "2000-01-02": 1, "2000-01-03": 1, "2000-01-04": 1}
		redistest.Check(t, maps.Equal(completed, want), "completed %v; want each once", completed)
		redistest.Check(t, crashed == 1 && started["2000-01-03"] == 2,
			"%d crashes, %d starts on the third night; want 1 and 2", crashed, started["2000-01-03"])
		for day, latest := range map[string]time.Time{
			"2000-01-01": night(0, 3*time.Hour+took+2*time.Minute),
			"2000-01-02": night(1, 4*time.Hour+10*time.Minute+took+2*time.Minute),
			"2000-01-03": night(2, 3*time.Hour+took/2+30*time.Second+took+2*time.Minute),
		} {
			if at := finishedAt[day]; at.After(latest) {
				t.Errorf("the job of %s was completed at %v; want %v at the latest", day, at, latest)
			}
		}
	})
}
