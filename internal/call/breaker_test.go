package call

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// callAt is a call that is over, in times since the test began.
type callAt struct {
	sent, over time.Duration
	err        error
}

// tell tells a breaker of calls, at their time.
func tell(b *breaker, calls []callAt) {
	for _, c := range calls {
		time.Sleep(c.over - time.Since(b.born))
		b.outcome(b.born.Add(c.sent), c.err)
	}
}

func TestBreakerOpens(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	var short []callAt // calls with a ctx of 50 ms
	for at := time.Duration(0); at < 3*s+100*ms; at += 100 * ms {
		short = append(short, callAt{at, at + 50*ms, context.DeadlineExceeded})
	}
	var gone []callAt // outcomes that say nothing of the server
	for _, err := range []error{redis.ErrClosed, NotSent(errWithdrawn), redis.ErrPoolTimeout, redis.ErrPoolExhausted} {
		gone = append(gone, callAt{0, 10 * s, err})
	}
	for name, c := range map[string]struct {
		calls []callAt
		opens bool
	}{
		"a refused connection":                 {[]callAt{{0, 1 * ms, errRefused}}, true},
		"one of several connections refused":   {[]callAt{{1 * s, 1*s + 1*ms, nil}, {0, 2 * s, errRefused}}, false},
		"a dial that its ctx ended":            {[]callAt{{0, 1 * ms, &net.OpError{Op: "dial", Err: context.Canceled}}}, false},
		"silence":                              {[]callAt{{0, 3 * s, io.EOF}}, true},
		"two calls in silence":                 {[]callAt{{0, 1 * s, io.EOF}, {2 * s, 3 * s, io.EOF}}, true},
		"the first call ends last":             {[]callAt{{2 * s, 2500 * ms, io.EOF}, {0, 3 * s, io.EOF}}, true},
		"a shorter silence":                    {[]callAt{{0, 2900 * ms, io.EOF}}, false},
		"calls with a short ctx":               {short, true},
		"a connection that hangs among others": {[]callAt{{4 * s, 4100 * ms, nil}, {0, 5 * s, io.EOF}}, false},
		"silence since an answer":              {[]callAt{{0, 2 * s, io.EOF}, {2500 * ms, 2600 * ms, nil}, {0, 5 * s, io.EOF}}, false},
		"answers out of order":                 {[]callAt{{4 * s, 4100 * ms, nil}, {0, 4200 * ms, nil}, {10 * ms, 5 * s, io.EOF}}, false},
		"an error as the answer":               {[]callAt{{0, 3 * s, io.EOF}, {0, 3 * s, serverSays("OOM")}}, false},
		"a server that loads":                  {[]callAt{{0, 1 * ms, errRefused}, {0, 3 * s, serverSays("LOADING")}}, false},
		"outcomes that say nothing of it":      {gone, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client := redistest.Bubble(t)
				link := redistest.Must(NewClient(client()))(t)
				tell(link.only.breaker, c.calls)
				redistest.Expect(t, link.Away("k"), c.opens, "open: %v")
				// One lost packet and an idle minute are no outage.
				time.Sleep(time.Minute)
				redistest.Expect(t, link.Away("k"), c.opens, "open after an idle minute: %v")
			})
		})
	}
}

// The time that replicas take to confirm says nothing of the server. A call that was not sent,
// since its caller had left, does not, either.
func TestBreakerIgnores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newBubble(t)
		q := newQueue(c.only, Confirm{Replicas: 1, Wait: time.Minute}, minConfirmedBytes)
		q.trips = 2
		began := time.Now()
		time.Sleep(time.Minute)
		q.ended(trip{began: began}, io.EOF)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 {
			redistest.WantErr(t, redistest.ErrorOf(c.Do(ctx, echoed("k", 1))), ErrNotSent)
			time.Sleep(time.Minute)
		}
		redistest.Check(t, c.troubles.Load() == 0, "the breaker counts what says nothing of the server")
		c.only.breaker.outcome(time.Now(), errRefused)
		q.ended(trip{began: time.Now()}, nil)
		redistest.Check(t, !c.Away("k"), "an answer with replicas does not close the breaker")
	})
}

// A caller's suspicion opens the breaker, and any answer closes it. A call that waited in a crowd is no reason for one
// while the server answers others that were sent after it began.
func TestSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		link := redistest.Must(NewClient(client()))(t)
		for range 2 {
			link.Suspect("k", time.Now(), io.EOF)
			link.Suspect("k", time.Now(), io.EOF)
			redistest.Check(t, link.Away("k") && link.troubles.Load() == 1, "the breaker is closed")
			redistest.NoError(t, link.Reachable(t.Context(), "k"))
			redistest.Check(t, !link.Away("k") && link.troubles.Load() == 0, "the breaker is open after an answer")
			time.Sleep(time.Second)
			link.only.breaker.outcome(time.Now(), nil)
			link.Suspect("k", time.Now().Add(-time.Millisecond), io.EOF)
			redistest.Check(t, !link.Away("k"), "the breaker is open although the server answers others")
			time.Sleep(time.Second)
		}
	})
}

// faulty is a hook whose commands fail while it is down, or hang.
type faulty struct {
	down atomic.Bool
	mu   sync.Mutex
	got  []time.Time // when each GET came; guarded by mu
}

func (f *faulty) gets() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got
}

// faultyClient is a client with such a hook, whose breaker is open. If hang is not nil, commands wait for its end, and
// then fail.
func faultyClient(t *testing.T, hang chan struct{}) (*Client, *faulty) {
	rdb, c := newBubble(t)
	f := &faulty{}
	rdb.AddHook(redistest.Around(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if cmds[0].Name() == "get" {
			f.mu.Lock()
			f.got = append(f.got, time.Now())
			f.mu.Unlock()
		}
		if !f.down.Load() {
			return send()
		}
		if hang != nil {
			<-hang
		}
		cmds[0].SetErr(errRefused)
		return errRefused
	}))
	c.only.breaker.outcome(time.Now(), errRefused)
	f.down.Store(true)
	return c, f
}

// While the breaker is open, callers wait for a probe, at most 100 ms, and no longer than their ctx. Probes begin 250 ms
// apart, and only if somebody asks. The first caller after the server's return goes on.
func TestOpenBreakerIsNotBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		c, f := faultyClient(t, hang)
		defer close(hang)
		for i := range 100 {
			began := time.Now()
			err := c.Reachable(t.Context(), "k")
			redistest.CheckNow(t, errors.Is(err, ErrNotSent) && errors.Is(err, errAway) && errors.Is(err, errRefused) && Classify(err) == NotNow && OutOfReach(err),
				"call %d: %v", i, err)
			redistest.AtMost(t, time.Since(began), probePatience, "call %d took %v", i)
			time.Sleep(10 * time.Millisecond)
		}
		gets := f.gets()
		for i, at := range gets[1:] {
			redistest.Between(t, at.Sub(gets[i]), probeEvery, probeEvery+20*time.Millisecond, "the gap before probe %d is %v", i+1)
		}
		time.Sleep(time.Minute)
		n := len(f.gets())
		redistest.Check(t, n == len(gets) && n >= 5, "%d probes, %d of them while nobody asked", n, n-len(gets))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began := time.Now()
		redistest.CheckNow(t, c.Reachable(ctx, "k") != nil, "the server is within reach")
		redistest.AtMost(t, time.Since(began), time.Millisecond, "a caller whose ctx ended waited for %v")
		time.Sleep(probeEvery)
		f.down.Store(false)
		redistest.NoError(t, c.Reachable(t.Context(), "k"))
		redistest.Check(t, c.troubles.Load() == 0 && !c.Away("k"), "the breaker is open after an answer")
	})
}

// A pool may be full of connections that hang, so many probes go out before any has ended.
func TestProbesWithoutAnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		c, f := faultyClient(t, hang)
		for range 40 {
			_ = c.Reachable(t.Context(), "k")
			time.Sleep(probeEvery)
		}
		redistest.Expect(t, len(f.gets()), 16, "%d probes")
		close(hang)
		synctest.Wait()
		_ = c.Reachable(t.Context(), "k")
		redistest.Expect(t, len(f.gets()), 17, "%d probes after the others had ended")
	})
}

// The cause that callers are told is never the end of another caller's ctx.
func TestCauseIsNoForeignCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := faultyClient(t, nil)
		for _, err := range []error{context.DeadlineExceeded, context.Canceled, NotSent(context.DeadlineExceeded)} {
			for name, tell := range map[string]func(){
				"an outcome": func() { c.only.breaker.outcome(time.Now(), err) },
				"a suspicion": func() {
					c.only.breaker.outcome(time.Now(), nil)
					c.Suspect("k", time.Now(), err)
				},
			} {
				tell()
				told := c.Reachable(t.Context(), "k")
				redistest.Check(t, told != nil && !errors.Is(told, context.DeadlineExceeded) && !errors.Is(told, context.Canceled), "%v of %s is told as %v", err, name, told)
			}
		}
	})
}
