package mutex

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

const killTTL = time.Second

func init() {
	// runner does the slots in turn until it is killed: address, family, number of slots. It
	// counts each run that it begins, and checks what (false, nil) promises.
	redistest.RegisterChild("runner", func(args []string) int {
		rdb := harness.Dial(args[0])
		slots, _ := strconv.Atoi(args[2])
		locks, err := mutex.New(rdb, mutex.Config{Name: args[1], TTL: killTTL})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		fails := func(format string, args2 ...any) {
			rdb.RPush(context.Background(), args[1]+":errors", fmt.Sprintf(format, args2...))
		}
		fmt.Println("running", 1)
		for slot := 0; slot < slots; {
			name := strconv.Itoa(slot)
			ran, err := locks.DoOnce(context.Background(), "job", name, time.Hour, func(ctx context.Context, _ uint64) error {
				rdb.Incr(context.Background(), args[1]+":total")
				err := rdb.Incr(context.Background(), args[1]+":runs:"+name).Err()
				time.Sleep(time.Millisecond)
				return err
			})
			switch {
			case err == nil:
				if rdb.Exists(context.Background(), harness.Part(harness.Locks, args[1], "job", "done:"+name)).Val() == 0 {
					fails("slot %d is not complete after (%t, nil)", slot, ran)
				}
				slot++
			case errors.Is(err, leasehold.ErrLost), errors.Is(err, leasehold.ErrUnavailable):
			default:
				fails("slot %d: %v", slot, err)
				return 1
			}
		}
		fmt.Println("finished", "all")
		return 0
	})
}

// Processes are killed while they do the slots, at any step. Each slot is run at least once, and
// a completion never changes.
func TestSlotsUnderKills(t *testing.T) {
	srv := redistest.Shared(t, redistest.Newest(t))
	rdb := srv.Client()
	family := redistest.Name(t)
	const slots = 400
	random := rand.New(rand.NewPCG(redistest.Seed(t), 0))
	start := func() *redistest.Child {
		return redistest.StartChild(t, "runner", srv.Addr(), family, strconv.Itoa(slots))
	}
	watched, stop := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() {
		first := map[int]string{}
		for slot := 0; watched.Err() == nil; slot = (slot + 1) % slots {
			by, err := rdb.Get(watched, harness.Part(harness.Locks, family, "job", "done:"+strconv.Itoa(slot))).Result()
			switch before, known := first[slot]; {
			case err == nil && !known:
				first[slot] = by
			case err == nil && by != before, errors.Is(err, redis.Nil) && known:
				t.Errorf("slot %d was completed by %s, and then by %q (%v)", slot, before, by, err)
				return
			}
		}
	})
	// Two processes run beside each other. Again and again one of them is killed.
	const kills = 8
	other := start()
	for range kills {
		one := start()
		one.Expect("running")
		total, after := rdb.Get(t.Context(), family+":total").Val(), random.IntN(20)
		redistest.Eventually(t, "some progress", func() bool { return rdb.Get(t.Context(), family+":total").Val() != total })
		time.Sleep(time.Duration(after) * time.Millisecond)
		other.Kill()
		other = one
	}
	other.Expect("finished")
	stop()
	watch.Wait()
	for _, text := range rdb.LRange(t.Context(), family+":errors", 0, -1).Val() {
		t.Error(text)
	}
	again := 0
	for slot := range slots {
		runs, err := rdb.Get(t.Context(), family+":runs:"+strconv.Itoa(slot)).Int()
		redistest.Check(t, err == nil && runs >= 1, "slot %d ran %d times (%v)", slot, runs, err)
		if runs > 1 {
			again++
		}
	}
	t.Logf("%d kills; %d of %d slots were run again", kills, again, slots)
}
