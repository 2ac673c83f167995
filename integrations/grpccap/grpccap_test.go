package grpccap_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/integrations/grpccap"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const tenant = captest.Tenant

func byTenant(context.Context, string, any) string { return tenant }

// service runs what a test wants.
type service struct {
	pb.UnimplementedTestServiceServer
	unary  func(ctx context.Context) error
	stream func(stream pb.TestService_FullDuplexCallServer) error
}

func (s *service) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{}, s.unary(ctx)
}

func (s *service) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	return s.stream(stream)
}

// start runs a real server with that cap, and returns it and a client.
func start(t testing.TB, caps *semaphore.Semaphore, cfg grpccap.Config, s *service, opts ...grpc.DialOption) (*grpc.Server, pb.TestServiceClient) {
	t.Helper()
	if cfg.Key == nil {
		cfg.Key = byTenant
	}
	capped := redistest.Must(grpccap.New(caps, cfg))(t)
	server := grpc.NewServer(grpc.UnaryInterceptor(capped.Unary()), grpc.StreamInterceptor(capped.Stream()))
	pb.RegisterTestServiceServer(server, s)
	l := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn := redistest.Must(grpc.NewClient(l.Addr().String(), append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...))(t)
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})
	return server, pb.NewTestServiceClient(conn)
}

func call(ctx context.Context, client pb.TestServiceClient, opts ...grpc.CallOption) error {
	_, err := client.UnaryCall(ctx, &pb.SimpleRequest{}, opts...)
	return err
}

func inBackground(ctx context.Context, client pb.TestServiceClient) <-chan error {
	errs := make(chan error, 1)
	go func() { errs <- call(ctx, client) }()
	return errs
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	redistest.CheckNow(t, status.Code(err) == want, "%v; want %v", err, want)
}

func TestNewNamesEveryBadField(t *testing.T) {
	_, err := grpccap.New(nil, grpccap.Config{Wait: -time.Second})
	redistest.WantErr(t, err, leasehold.ErrInvalid)
	redistest.WantText(t, err, "grpccap", "semaphore is nil", "Key is nil", "Wait is -1s; want 0")
}

// A call is refused for its key, which may come from its metadata, and told when to come back. One without a key needs
// no permit.
func TestRefusalSaysWhenToComeBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: 1})
		b := captest.NewBlocker(t)
		_, client := start(t, caps, grpccap.Config{Key: func(ctx context.Context, method string, req any) string {
			_, ok := req.(*pb.SimpleRequest)
			redistest.Check(t, ok && method == "/grpc.testing.TestService/UnaryCall", "the request of %q is a %T", method, req)
			md, _ := metadata.FromIncomingContext(ctx)
			return md.Get("tenant")[0]
		}}, &service{unary: b.Work})
		of := func(tenant string) context.Context {
			return metadata.AppendToOutgoingContext(t.Context(), "tenant", tenant)
		}
		first := inBackground(of(tenant), client)
		redistest.Get(t, "the first call", b.Started)

		var trailer metadata.MD
		err := call(of(tenant), client, grpc.Trailer(&trailer))
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
		redistest.AtLeast(t, redistest.Must(strconv.Atoi(pushback[0]))(t), 1, "the push-back is %d")

		none := inBackground(of(""), client)
		redistest.Get(t, "a call without a key", b.Started)
		b.Release()
		wantCode(t, redistest.Get(t, "the first answer", first), codes.OK)
		wantCode(t, redistest.Get(t, "the answer without a key", none), codes.OK)
		captest.WantState(t, caps, 0, 0)
		wantCode(t, call(of(tenant), client), codes.OK)
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

// A client that cancels leaves the queue, or ends its work. A server that stops serves the calls that wait first.
func TestCallsThatAreCancelledAndThoseThatWait(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: 1})
		b := captest.NewBlocker(t)
		server, client := start(t, caps, grpccap.Config{Wait: time.Minute, FailOpen: true}, &service{unary: b.Work})
		working, cancelWorking := context.WithCancel(t.Context())
		first := inBackground(working, client)
		ctx := redistest.Get(t, "the first call", b.Started)
		waiting, cancelWaiting := context.WithCancel(t.Context())
		second := inBackground(waiting, client)
		captest.WantState(t, caps, 1, 1)
		cancelWaiting()
		wantCode(t, redistest.Get(t, "the second answer", second), codes.Canceled)
		captest.WantState(t, caps, 1, 0)
		third := inBackground(t.Context(), client)
		captest.WantState(t, caps, 1, 1)
		stopped := make(chan struct{})
		go func() {
			server.GracefulStop()
			close(stopped)
		}()
		cancelWorking()
		wantCode(t, redistest.Get(t, "the first answer", first), codes.Canceled)
		<-ctx.Done()
		redistest.Get(t, "the third call", b.Started)
		b.Release()
		wantCode(t, redistest.Get(t, "the third answer", third), codes.OK)
		redistest.Get(t, "the stop", stopped)
		captest.WantState(t, caps, 0, 0)
		redistest.Expect(t, len(b.Started), 0, "%d more calls were handled")
	})
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
		outside := func() error {
			_, err := redistest.Must(grpccap.New(caps, cfg))(t).Unary()(t.Context(), nil, info, func(context.Context, any) (any, error) { return nil, nil })
			return err
		}
		redistest.WantErr(t, outside(), leasehold.ErrInvalid, redistest.Says("2 permits"))
		redistest.Check(t, !handled, "the handler ran")
		redistest.WantErr(t, caps.Close(t.Context()))
		permits = 1
		err = call(t.Context(), client)
		wantCode(t, err, want)
		if !failOpen {
			redistest.Expect(t, status.Convert(err).Message(), "redis unavailable", "the client is told %q, not of keys")
			redistest.WantErr(t, outside(), leasehold.ErrClosed, redistest.Says("/"+tenant+": "))
		}
	}
}

// A stream holds its permits until its handler returns. The client of a refused stream learns
// of that at its first Recv.
func TestStream(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: 1})
		started := make(chan struct{}, 1)
		_, client := start(t, caps, grpccap.Config{Key: func(_ context.Context, _ string, req any) string {
			redistest.Check(t, req == nil, "the request of a stream is %v", req)
			return tenant
		}}, &service{stream: func(stream pb.TestService_FullDuplexCallServer) error {
			started <- struct{}{}
			_, err := stream.Recv()
			if err != nil {
				return err
			}
			return stream.Send(&pb.StreamingOutputCallResponse{})
		}})
		first := redistest.Must(client.FullDuplexCall(t.Context()))(t)
		redistest.Get(t, "the first stream", started)
		second, err := client.FullDuplexCall(t.Context())
		redistest.WantErr(t, err)
		_, err = second.Recv()
		wantCode(t, err, codes.ResourceExhausted)
		redistest.Check(t, len(second.Trailer().Get("grpc-retry-pushback-ms")) == 1, "the trailers are %v", second.Trailer())
		redistest.WantErr(t, first.Send(&pb.StreamingOutputCallRequest{}))
		redistest.Must(first.Recv())(t)
		captest.WantState(t, caps, 0, 0)
	})
}

// The loss of a lease ends the ctx of the stream. A handler that is blocked in Recv stays there,
// as the documentation says.
func TestLossDoesNotWakeRecv(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		notWoken(t, target.Client(t), func(stream pb.TestService_FullDuplexCallServer) error {
			_, err := stream.Recv()
			return err
		})
	})
}

// Neither is one in Send, to a client that does not read: the first message fills the window.
func TestLossDoesNotWakeSend(t *testing.T) {
	notWoken(t, redistest.MiniClient(t), func(stream pb.TestService_FullDuplexCallServer) error {
		message := &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, 1<<20)}}
		return errors.Join(stream.Send(message), stream.Send(message))
	})
}

// notWoken shows that a lost lease does not end blocked, which the client's messages and reading end.
func notWoken(t *testing.T, rdb redis.UniversalClient, blocked func(pb.TestService_FullDuplexCallServer) error) {
	caps := captest.New(t, rdb, semaphore.Config{Limit: 1})
	ctxs, woken := make(chan context.Context, 1), make(chan struct{})
	_, client := start(t, caps, grpccap.Config{}, &service{stream: func(stream pb.TestService_FullDuplexCallServer) error {
		ctxs <- stream.Context()
		err := blocked(stream)
		close(woken)
		if err != nil {
			return err
		}
		return stream.Context().Err()
	}})
	stream, err := client.FullDuplexCall(t.Context())
	redistest.WantErr(t, err)
	ctx := redistest.Get(t, "the stream", ctxs)
	captest.Revoke(t, caps)
	<-ctx.Done()
	redistest.WantErr(t, context.Cause(ctx), leasehold.ErrRevoked)
	select {
	case <-woken:
		t.Error("the handler was woken: the documentation says otherwise")
	case <-time.After(50 * time.Millisecond):
	}
	redistest.WantErr(t, stream.Send(&pb.StreamingOutputCallRequest{}))
	for err == nil { // what it had sent, and then its end
		_, err = stream.Recv()
	}
	wantCode(t, err, codes.Aborted)
}
