package call

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestCallsOfABatchShareARoundTrip(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		const seats = 20
		batch := NewBatch(seats)
		for i, seat := range batch[:seats-2] {
			h.done.Go(func() {
				reply, err := seat.Do(t.Context(), h.Client, echoed(fmt.Sprint("k", i), i))
				wantEcho(t, i, reply, err)
			})
		}
		ctx, leave := context.WithCancel(t.Context())
		h.done.Go(func() {
			_, err := batch[seats-1].Do(ctx, h.Client, echoed("left", 1))
			redistest.Check(t, errors.Is(err, ErrNotSent) && errors.Is(err, context.Canceled), "a caller that left: %v; want its ctx's error, unsent", err)
		})
		time.Sleep(time.Second)
		leave()
		synctest.Wait()
		alone, pipelines := h.sent()
		redistest.Check(t, alone == 0 && len(pipelines) == 0, "sent %d alone and %v together; want none before each seat is settled", alone, pipelines)
		batch[seats-2].Leave()
		batch[seats-2].Leave()
		h.done.Wait()
		// Once more in full for the first, and the others by name.
		alone, pipelines = h.sent()
		redistest.Check(t, alone == 0 && len(pipelines) == 3 && len(pipelines[0]) == seats-2,
			"sent %d alone and %v together; want %d at once", alone, pipelines, seats-2)
		h.open()
		for _, seat := range []*Seat{batch[0], batch[seats-2]} { // used and left
			reply, err := seat.Do(t.Context(), h.Client, echoed("k", 3))
			wantEcho(t, 3, reply, err)
		}
		alone, _ = h.sent()
		redistest.Check(t, alone == 2, "sent %d alone; want the 2 of seats that were settled", alone)
	})
}

// A seat may be left while its Do is under way on another goroutine, which was held up before
// it handed its call in. It counts once: Do sends its call by itself then.
func TestSeatThatIsLeftDuringItsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, newClient := redistest.Bubble(t)
		rdb := newClient()
		gate := make(chan struct{})
		rdb.AddHook(ours(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if ScriptName(fmt.Sprint(cmds[0].Args()[1])) == "time" {
				<-gate // the first call of a client waits for this answer
			}
			return send()
		}))
		c := redistest.Must(NewClient(rdb))(t)
		seats := NewBatch(3)
		var done sync.WaitGroup
		for i, seat := range seats[:2] {
			done.Go(func() {
				reply, err := seat.Do(t.Context(), c, echoed(fmt.Sprint("k", i), i))
				wantEcho(t, i, reply, err)
			})
		}
		synctest.Wait()
		seats[0].Leave()
		close(gate)
		synctest.Wait()
		reply, err := seats[2].Do(t.Context(), c, echoed("k2", 2))
		wantEcho(t, 2, reply, err)
		done.Wait()
	})
}

func TestWaitEndsWithItsCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spawn := func(f func()) { go f() }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		slow := func(context.Context) (int, error) { time.Sleep(time.Minute); return 1, nil }
		began := time.Now()
		_, answered, err := Wait(ctx, spawn, slow)
		redistest.Check(t, !answered && errors.Is(err, context.DeadlineExceeded) && time.Since(began) == time.Second,
			"answered %v, %v after %v; want ctx's error", answered, err, time.Since(began))
		_, answered, err = Wait(ctx, spawn, slow)
		redistest.Check(t, !answered && errors.Is(err, ErrNotSent), "answered %v, %v; want nothing begun", answered, err)
		for _, ctx := range []context.Context{t.Context(), context.Background()} {
			v, answered, err := Wait(ctx, spawn, slow)
			redistest.Check(t, answered && err == nil && v == 1, "%v, answered %v, %v; want 1", v, answered, err)
		}
		time.Sleep(time.Hour)
	})
}
