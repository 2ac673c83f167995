package grpccap_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/integrations/grpccap"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	redistest.CheckNow(t, status.Code(err) == want, "%v; want %v", err, want)
}

func TestNewNamesEveryBadField(t *testing.T) {
	_, err := grpccap.New(nil, grpccap.Config{Wait: -time.Second})
	redistest.WantErr(t, err, leasehold.ErrInvalid)
	redistest.WantText(t, err, "grpccap", "semaphore is nil", "Key is nil", "Wait is -1s; want 0")
}

func TestRefusalSaysWhenToComeBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: 1})
		b := captest.NewBlocker(t)
		_, client := start(t, caps, grpccap.Config{}, &service{unary: b.Work})
		first := inBackground(t.Context(), client)
		redistest.Get(t, "the first call", b.Started)

		var trailer metadata.MD
		err := call(t.Context(), client, grpc.Trailer(&trailer))
		wantCode(t, err, codes.ResourceExhausted)
		var after time.Duration
		for _, detail := range status.Convert(err).Details() {
			if info, ok := detail.(*errdetails.RetryInfo); ok {
				after = info.RetryDelay.AsDuration()
			}
		}
		redistest.Check(t, after > 0 && after <= 30*time.Second, "RetryInfo says %v", after)
		pushback := trailer.Get("grpc-retry-pushback-ms")
		redistest.CheckNow(t, len(pushback) == 1, "the trailers are %v", trailer)
		if ms, err := strconv.Atoi(pushback[0]); err != nil || ms < 1 {
			t.Errorf("the push-back is %q", pushback[0])
		}
		b.Release()
		wantCode(t, redistest.Get(t, "the first answer", first), codes.OK)
		captest.WantState(t, caps, 0, 0)
		wantCode(t, call(t.Context(), client), codes.OK)
	})
}

// gRPC's own retries ignore RetryInfo: without the trailer all five tries are over before the permit is free.
func TestOwnRetriesAreServedOnTheSecondTry(t *testing.T) {
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	held := redistest.Must(caps.Acquire(t.Context(), tenant))(t)
	var tries atomic.Int32
	key := func(context.Context, string, any) string {
		if tries.Add(1) == 1 {
			time.AfterFunc(400*time.Millisecond, func() { _ = held.Release() })
		}
		return tenant
	}
	const policy = `{"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 5, "initialBackoff": "0.01s", "maxBackoff": "0.02s", "backoffMultiplier": 1,
		"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`
	_, client := start(t, caps, grpccap.Config{Key: key}, &service{unary: func(context.Context) error { return nil }},
		grpc.WithDefaultServiceConfig(policy))
	wantCode(t, call(t.Context(), client), codes.OK)
	redistest.Expect(t, tries.Load(), 2, "%d tries")
}

func TestClientThatCancelsLeavesTheQueue(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: 1})
		b := captest.NewBlocker(t)
		_, client := start(t, caps, grpccap.Config{Wait: time.Minute, FailOpen: true}, &service{unary: b.Work})
		working, cancelWorking := context.WithCancel(t.Context())
		first := inBackground(working, client)
		ctx := redistest.Get(t, "the first call", b.Started)
		waiting, cancelWaiting := context.WithCancel(t.Context())
		second := inBackground(waiting, client)
		captest.WantState(t, caps, 1, 1)
		cancelWaiting()
		wantCode(t, redistest.Get(t, "the second answer", second), codes.Canceled)
		captest.WantState(t, caps, 1, 0)
		cancelWorking()
		wantCode(t, redistest.Get(t, "the first answer", first), codes.Canceled)
		<-ctx.Done()
		captest.WantState(t, caps, 0, 0)
		redistest.Expect(t, len(b.Started), 0, "%d more calls were handled")
	})
}

// A server that stops serves the calls that wait for a permit first.
func TestGracefulStopServesWaitingCalls(t *testing.T) {
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	b := captest.NewBlocker(t)
	server, client := start(t, caps, grpccap.Config{Wait: time.Minute}, &service{unary: b.Work})
	calls := []<-chan error{inBackground(t.Context(), client)}
	redistest.Get(t, "the first call", b.Started)
	for range 3 {
		calls = append(calls, inBackground(t.Context(), client))
	}
	captest.WantState(t, caps, 1, 3)
	stopped := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(stopped)
	}()
	b.Release()
	for _, c := range calls {
		wantCode(t, redistest.Get(t, "an answer", c), codes.OK)
	}
	redistest.Get(t, "the stop", stopped)
	captest.WantState(t, caps, 0, 0)
}

func TestKeyOfTheCall(t *testing.T) {
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	var method string
	b := captest.NewBlocker(t)
	_, client := start(t, caps, grpccap.Config{Key: func(ctx context.Context, m string, req any) string {
		method = m
		if _, ok := req.(*pb.SimpleRequest); !ok {
			t.Errorf("the request is a %T", req)
		}
		md, _ := metadata.FromIncomingContext(ctx)
		return md.Get("tenant")[0]
	}}, &service{unary: b.Work})
	of := func(tenant string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "tenant", tenant)
	}
	first := inBackground(of("acme"), client)
	redistest.Get(t, "the first call", b.Started)
	wantCode(t, call(of("acme"), client), codes.ResourceExhausted)
	redistest.Expect(t, method, "/grpc.testing.TestService/UnaryCall", "the method is %q")
	none := inBackground(of(""), client)
	redistest.Get(t, "a call without a key", b.Started)
	b.Release()
	wantCode(t, redistest.Get(t, "an answer", first), codes.OK)
	wantCode(t, redistest.Get(t, "an answer", none), codes.OK)
}

// A call that fails because it lost its permit is aborted, also if its handler returns the cause of its ctx.
func TestCauseOfALossIsAborted(t *testing.T) {
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	_, client := start(t, caps, grpccap.Config{}, &service{unary: func(ctx context.Context) error {
		captest.Revoke(t, caps)
		<-ctx.Done()
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}})
	err := call(t.Context(), client)
	wantCode(t, err, codes.Aborted)
	redistest.Expect(t, status.Convert(err).Message(), "the permit was lost", "the client is told %q, not of keys")
}

// A call that can never be served is a mistake, with FailOpen, too. While Redis cannot be asked, a call gets Unavailable,
// or is handled with FailOpen. TestHungRedis of httpcap shows how soon, since both adapters share the gate.
func TestMistakeAndUnavailable(t *testing.T) {
	for failOpen, want := range map[bool]codes.Code{false: codes.Unavailable, true: codes.OK} {
		caps, permits, handled := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1}), 2, false
		cfg := grpccap.Config{Key: byTenant, FailOpen: failOpen, Permits: func(context.Context, string, any) int { return permits }}
		_, client := start(t, caps, cfg, &service{unary: func(context.Context) error { handled = true; return nil }})
		err := call(t.Context(), client)
		wantCode(t, err, codes.Internal)
		redistest.Expect(t, status.Convert(err).Message(), "invalid argument", "the client is told %q, not of keys")
		info := &grpc.UnaryServerInfo{FullMethod: "m"}
		_, err = redistest.Must(grpccap.New(caps, cfg))(t).Unary()(t.Context(), nil, info, nil)
		redistest.WantErr(t, err, leasehold.ErrInvalid, redistest.Says("2 permits"))
		redistest.Check(t, !handled, "the handler ran")
		redistest.WantErr(t, caps.Close(t.Context()))
		permits = 1
		wantCode(t, call(t.Context(), client), want)
	}
}
