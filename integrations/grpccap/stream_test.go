package grpccap_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/integrations/grpccap"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

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
		if got := second.Trailer().Get("grpc-retry-pushback-ms"); len(got) != 1 {
			t.Errorf("the trailers are %v", second.Trailer())
		}
		redistest.WantErr(t, first.Send(&pb.StreamingOutputCallRequest{}))
		redistest.Must(first.Recv())(t)
		captest.WantState(t, caps, 0, 0)
	})
}

// The loss of a lease ends the ctx of the stream. A handler that is blocked in Recv stays there,
// as the documentation says.
func TestLossDoesNotWakeRecv(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: 1})
		ctxs, received := make(chan context.Context, 1), make(chan struct{})
		_, client := start(t, caps, grpccap.Config{}, &service{stream: func(stream pb.TestService_FullDuplexCallServer) error {
			ctxs <- stream.Context()
			_, err := stream.Recv()
			close(received)
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
		case <-received:
			t.Error("Recv returned: the documentation says otherwise")
		default:
		}
		redistest.WantErr(t, stream.Send(&pb.StreamingOutputCallRequest{}))
		_, err = stream.Recv()
		wantCode(t, err, codes.Aborted)
	})
}
