package call_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// lanes is an engine whose round trips can be held up, and what it sent.
type lanes struct {
	eng  *engine.Engine
	gate chan struct{} // commands that are sent alone pass when it is closed
	spy  *spy
	done sync.WaitGroup
	seq  uint64
}

func newLanes(t *testing.T, then func()) *lanes {
	_, client := redistest.Bubble(t)
	rdb := client()
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	s := &spy{gate: gate, then: then}
	rdb.AddHook(s)
	eng, err := engine.New(rdb)
	if err != nil {
		t.Fatal(err)
	}
	return &lanes{eng: eng, gate: gate, spy: s}
}

// enter lets a caller enter a key of its own, which ends with outcome.
func (l *lanes) enter(t *testing.T, outcome func(engine.EnterReply, error)) {
	t.Helper()
	l.seq++
	r, err := keys.Family{Kind: "mtx", Name: "lanes"}.Resource(fmt.Sprint("k", l.seq))
	if err != nil {
		t.Fatal(err)
	}
	req := engine.NewRequest(engine.NewResource(r, true), "abcdefghijklmnopqrstuv", l.seq, 1, time.Minute, 1)
	l.done.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				outcome(engine.EnterReply{}, fmt.Errorf("%v", p))
			}
		}()
		c := req.Enter(engine.EnterOptions{})
		v, err := l.eng.Do(t.Context(), c)
		var reply engine.EnterReply
		if err == nil {
			reply, err = req.ParseEnter(c, v)
		}
		outcome(reply, err)
	})
}

// granted is an outcome that has to be a grant.
func granted(t *testing.T) func(engine.EnterReply, error) {
	return func(r engine.EnterReply, err error) {
		if err != nil || r.Code != engine.Granted {
			t.Errorf("entered with %+v, %v; want a grant", r, err)
		}
	}
}

// spy counts what a client sends.
type spy struct {
	gate chan struct{}
	then func() // before each pipeline, where there is one

	never bool // pipelines are not answered before their ctx ends

	mu        sync.Mutex
	alone     int
	pipelines []int // the length of each
}

func (s *spy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *spy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name != "evalsha" && name != "eval" {
			return next(ctx, cmd)
		}
		s.mu.Lock()
		s.alone++
		s.mu.Unlock()
		<-s.gate
		return next(ctx, cmd)
	}
}

func (s *spy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if name := cmds[0].Name(); name != "evalsha" && name != "eval" {
			return next(ctx, cmds)
		}
		s.mu.Lock()
		s.pipelines = append(s.pipelines, len(cmds))
		s.mu.Unlock()
		if s.then != nil {
			s.then()
		}
		if s.never {
			<-ctx.Done()
			for _, c := range cmds {
				c.SetErr(ctx.Err())
			}
			return ctx.Err()
		}
		return next(ctx, cmds)
	}
}

func (s *spy) sent() (alone int, pipelines []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alone, slices.Clone(s.pipelines)
}

// Callers that meet share a round trip, and few don't.
func TestCallsThatMeetShareARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(t, nil)
		for range engine.Width {
			l.enter(t, granted(t))
		}
		synctest.Wait()
		const more = 6
		for range more {
			l.enter(t, granted(t))
		}
		synctest.Wait()
		if alone, pipelines := l.spy.sent(); alone != engine.Width || len(pipelines) != 0 {
			t.Errorf("sent %d alone and %v together; want %d and none yet", alone, pipelines, engine.Width)
		}
		close(l.gate)
		l.done.Wait()
		// The server knows no script yet, so what came first in the pipeline is
		// sent once more in full, and the others by name.
		if _, pipelines := l.spy.sent(); len(pipelines) == 0 || pipelines[0] != more || len(pipelines) > 2 {
			t.Errorf("sent %v together; want %d at once", pipelines, more)
		}
		for range 3 {
			l.enter(t, granted(t))
			l.done.Wait()
		}
		if alone, _ := l.spy.sent(); alone < engine.Width+3 {
			t.Errorf("a lone caller's call was not sent alone")
		}
	})
}

// A crowd is served over a connection without buffers, which the embedded server
// has here: it answers each call before it reads the next ones.
func TestCrowdOverAConnectionWithoutBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(t, nil)
		close(l.gate)
		began := time.Now()
		const crowd = 500
		for range crowd {
			l.enter(t, granted(t))
		}
		l.done.Wait()
		if took := time.Since(began); took > 0 {
			t.Errorf("took %v; want no time at all", took)
		}
		_, pipelines := l.spy.sent()
		if len(pipelines) == 0 || len(pipelines) > crowd/4 {
			t.Errorf("sent %v together; want some, of several calls each", pipelines)
		}
	})
}

// Round trips that hang hold up nobody for longer than a moment.
func TestHangingRoundTripsHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(t, nil)
		for range engine.Width {
			l.enter(t, granted(t))
		}
		synctest.Wait()
		for range 3 {
			began := time.Now()
			var others sync.WaitGroup
			for range 5 {
				others.Add(1)
				l.enter(t, func(r engine.EnterReply, err error) {
					granted(t)(r, err)
					others.Done()
				})
			}
			others.Wait()
			if took := time.Since(began); took > engine.Stuck+time.Millisecond {
				t.Errorf("waited %v for round trips that hang; want %v", took, engine.Stuck)
			}
		}
		close(l.gate)
		l.done.Wait()
	})
}

// What ends a pipeline is no caller's ctx, and is not taken for it.
func TestBoundOfALaneIsNoCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(t, nil)
		l.spy.never = true
		for range engine.Width {
			l.enter(t, granted(t))
		}
		synctest.Wait()
		began := time.Now()
		var others sync.WaitGroup
		for range 5 {
			others.Add(1)
			l.enter(t, func(_ engine.EnterReply, err error) {
				defer others.Done()
				if err == nil || errors.Is(err, context.DeadlineExceeded) || engine.Classify(err) != engine.Unknown {
					t.Errorf("without an answer: %v; want an error that is unknown, and none of a ctx", err)
				}
			})
		}
		others.Wait()
		if took := time.Since(began); took > engine.CallBound+engine.Stuck {
			t.Errorf("waited %v for an answer; want %v", took, engine.CallBound)
		}
		close(l.gate)
		l.done.Wait()
	})
}

// A hook that panics takes its own caller down, and leaves nobody waiting.
func TestPanicInAPipelineLeavesNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(t, func() { panic("a hook") })
		for range engine.Width {
			l.enter(t, granted(t))
		}
		synctest.Wait()
		var mu sync.Mutex
		var errs []error
		for range 5 {
			l.enter(t, func(_ engine.EnterReply, err error) {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		synctest.Wait()
		close(l.gate)
		l.done.Wait()
		if len(errs) != 5 || errors.Join(errs...) == nil || slices.Contains(errs, nil) {
			t.Errorf("outcomes are %v; want five errors", errs)
		}
		l.spy.then = nil
		l.enter(t, granted(t))
		l.done.Wait()
	})
}
