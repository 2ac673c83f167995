package call

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func ignore([]int64, error) {}

func TestCallsThatMeetShareARoundTrip(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		h.busy(t)
		const more = 6
		h.echoes(t, more)
		synctest.Wait()
		alone, pipelines := h.sent()
		redistest.Check(t, alone == maxInFlight && len(pipelines) == 0, "sent %d alone and %v together; want %d and none yet", alone, pipelines, maxInFlight)
		h.finish()
		// The server knows no script yet, so the first in the pipeline is sent
		// once more in full, and the others by name.
		_, pipelines = h.sent()
		redistest.Check(t, len(pipelines) != 0 && len(pipelines[0]) == more && len(pipelines) <= 3, "sent %v together; want %d at once", pipelines, more)
		before, _ := h.sent()
		for range 3 {
			h.echoes(t, 1)
			h.done.Wait()
		}
		alone, _ = h.sent()
		redistest.Check(t, alone >= before+3, "a lone caller's call was not sent alone")
	})
}

func TestHangingRoundTripsHoldUpNobody(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		h.busy(t)
		for range 3 {
			began := time.Now()
			var others sync.WaitGroup
			for i := range 5 {
				others.Go(func() {
					reply, err := h.Do(context.Background(), echoed(fmt.Sprint("more", i), i))
					wantEcho(t, i, reply, err)
				})
			}
			others.Wait()
			took := time.Since(began)
			redistest.Check(t, took <= minRelief+time.Millisecond, "waited %v for round trips that hang; want %v", took, minRelief)
		}
		h.finish()
	})
}

// hang makes every pipeline wait for the end of its ctx.
func (h *held) hang() (longest func() int) {
	var mu sync.Mutex
	var under, most int
	h.together = func(ctx context.Context, cmds []redis.Cmder, _ func() error) error {
		mu.Lock()
		under++
		most = max(most, under)
		mu.Unlock()
		<-ctx.Done()
		mu.Lock()
		under--
		mu.Unlock()
		for _, cmd := range cmds {
			cmd.SetErr(ctx.Err())
		}
		return ctx.Err()
	}
	return func() int { mu.Lock(); defer mu.Unlock(); return most }
}

// The bound holds for any number of callers, and so few round trips hang.
func TestCallersOfAServerThatHangsAreAnsweredWithinTheBound(t *testing.T) {
	for _, callers := range []int{1000, 10000} {
		withHeld(t, func(t *testing.T, h *held) {
			longest := h.hang()
			for range maxInFlight {
				h.do(context.Background(), echoed("first", 1), ignore)
			}
			synctest.Wait()
			began := time.Now()
			var unsent, all int
			var mu sync.Mutex
			for i := range callers {
				one := echoed("more", 1)
				one.Rank = []Rank{ForCaller, GivesBack}[i%2]
				h.do(context.Background(), one, func(_ []int64, err error) {
					took := time.Since(began)
					redistest.Check(t, err != nil && !errors.Is(err, context.DeadlineExceeded) && took <= Bound+closely,
						"after %v: %v; want an error within %v, and none of a ctx", took, err, Bound)
					mu.Lock()
					defer mu.Unlock()
					all++
					if errors.Is(err, ErrSilent) {
						unsent++
						redistest.Check(t, errors.Is(err, ErrNotSent) && Classify(err) == NotNow, "%v is not known as unsent", err)
					} else {
						redistest.Check(t, Classify(err) == Unknown, "%v is of class %v", err, Classify(err))
					}
				})
			}
			time.Sleep(3 * Bound)
			mu.Lock()
			redistest.Check(t, all == callers && unsent >= callers/10, "%d of %d calls returned, %d of them unsent", all, callers, unsent)
			mu.Unlock()
			redistest.AtMost(t, longest(), maxHanging, "%d pipelines were under way")
			h.finish()
		})
	}
}

func TestCallWhoseCallerLeftIsNotSent(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		h.busy(t)
		ctx, leave := context.WithTimeout(t.Context(), minRelief/2)
		defer leave()
		began := time.Now()
		for i := range 10 {
			h.do(ctx, echoed("left", i), func(_ []int64, err error) {
				redistest.Check(t, errors.Is(err, ErrNotSent) && errors.Is(err, context.DeadlineExceeded) && time.Since(began) <= minRelief/2,
					"the caller left with %v after %v; want its ctx's error at once, and unsent", err, time.Since(began))
			})
		}
		h.do(t.Context(), echoed("stays", 1), func(reply []int64, err error) { wantEcho(t, 1, reply, err) })
		time.Sleep(minRelief * 2)
		h.finish()
		_, pipelines := h.sent()
		redistest.Check(t, len(pipelines) != 0 && !strings.Contains(fmt.Sprint(pipelines), "left"), "sent %v; want only the call that stayed", pipelines)
		ctx, leave = context.WithCancel(t.Context())
		leave()
		before, _ := h.sent()
		redistest.WantErr(t, redistest.ErrorOf(h.Do(ctx, echoed("left", 1))), ErrNotSent, context.Canceled)
		after, _ := h.sent()
		redistest.Check(t, after == before, "the call of a caller that had left was sent")
	})
}

func TestPanicOfAHookLeavesNobodyWithoutAnOutcome(t *testing.T) {
	withHeld(t, func(t *testing.T, h *held) {
		h.together = func(_ context.Context, cmds []redis.Cmder, _ func() error) error {
			cmds[0].SetErr((*net.OpError)(nil)) // its methods panic, too
			panic("a hook")
		}
		h.busy(t)
		for range 5 {
			h.do(t.Context(), echoed("more", 1), func(_ []int64, err error) {
				redistest.Check(t, err != nil && strings.Contains(err.Error(), "panicked"), "the outcome is %v; want a panic", err)
			})
		}
		synctest.Wait()
		h.finish()
		h.alone = func(context.Context, []redis.Cmder, func() error) error { panic("a hook") }
		_, err := h.Do(t.Context(), echoed("alone", 1))
		redistest.Check(t, err != nil && strings.Contains(err.Error(), "a hook"), "alone: %v; want the panic", err)
		h.together, h.alone = sends, sends
		h.echoes(t, maxInFlight+5)
		h.done.Wait()
	})
}
