// Package grpccap caps the calls that a gRPC server handles at the same time, per key and in all processes together.
//
//	capped, err := grpccap.New(caps, grpccap.Config{
//		Key: func(ctx context.Context, method string, req any) string { return tenantOf(ctx) },
//	})
//	…
//	server := grpc.NewServer(grpc.UnaryInterceptor(capped.Unary()), grpc.StreamInterceptor(capped.Stream()))
//
// A call without a permit gets ResourceExhausted, and Unavailable if Redis cannot be asked.
// docs/integrations.md says what happens in between.
package grpccap

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/integrations/internal/gate"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/semaphore"
)

// Config configures the interceptors of New.
type Config struct {
	// Key returns the key whose permits a call needs, for example its tenant, from the metadata of ctx, the full name
	// of the method ("/package.Service/Method") or the request. For a stream req is nil: no message has come yet. "":
	// the call needs no permit. Key must not block. It is required.
	Key func(ctx context.Context, method string, req any) string

	// Permits returns how many permits a call needs, 1 to the limit of its key. It is not
	// called for a call without a key, and must not block. nil: each call needs 1.
	Permits func(ctx context.Context, method string, req any) int

	// Wait bounds how long a call waits for its permits. The deadline of the call bounds it too, and so do the
	// semaphore's MaxWait and MaxWaiters. 0: a call that finds no free permit is refused at once. One shorter than a
	// round trip is over before Redis can answer, which looks like an outage: see FailOpen.
	Wait time.Duration

	// FailOpen handles calls without permits while Redis cannot be asked. Such calls are late
	// by the time in which the semaphore notices that, which is up to 1.2 s if the server is
	// gone and 5 s or more if it hangs; Wait bounds it too. Later calls are late by at most
	// 0.1 s. With FailOpen the loss of a lease does not end the ctx of its call: otherwise an
	// outage would cut long streams after a TTL. A call without an answer within Wait is refused
	// if Redis has answered others meanwhile. false: they get codes.Unavailable.
	FailOpen bool
}

// Capped makes the interceptors. All of them share what they know about Redis.
type Capped struct {
	gate *gate.Gate
	cfg  Config
}

// New checks cfg. Its error matches leasehold.ErrInvalid and names every bad field. The caller
// keeps sem, and closes it after the server. Capping a call costs an Acquire and a Release: two
// round trips. A finished answer waits for the Release for 100 ms at most. But an answer of less
// than 10 ms during which Redis falls silent waits for as long as Release does.
func New(sem *semaphore.Semaphore, cfg Config) (*Capped, error) {
	g, err := gate.New("grpccap", sem, cfg.FailOpen,
		keys.Unless(cfg.Key != nil, "Key", "is nil; want a function"),
		keys.Unless(cfg.Wait >= 0, "Wait", "is %v; want 0 (no wait) or more", cfg.Wait))
	if err != nil {
		return nil, err
	}
	if cfg.Permits == nil {
		cfg.Permits = func(context.Context, string, any) int { return 1 }
	}
	return &Capped{gate: g, cfg: cfg}, nil
}

// Unary returns the interceptor of unary calls. The ctx of the handler is the lease's. If the
// lease is lost and the handler fails because of that, the call gets codes.Aborted.
//
// A refused call gets codes.ResourceExhausted, with RetryInfo for clients that read it, and
// the trailer grpc-retry-pushback-ms for the retry policy of gRPC itself, which does not. A
// call that can never be served gets codes.Internal, and one for which Redis cannot be asked
// codes.Unavailable. Only interceptors around this one see why.
func (c *Capped) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (res any, err error) {
		setTrailer := func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) }
		err = c.run(ctx, info.FullMethod, req, setTrailer, func(ctx context.Context) error {
			res, err = handler(ctx, req)
			return err
		})
		return res, err
	}
}

// Stream returns the interceptor of streams. A stream holds its permits until its handler
// returns. Its client learns of a refusal at its first Recv. The loss of a lease ends the
// stream's ctx, but cannot wake a handler that is blocked in Recv, or in Send to a client that
// does not read. Else it is like Unary.
func (c *Capped) Stream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return c.run(stream.Context(), info.FullMethod, nil, stream.SetTrailer, func(ctx context.Context) error {
			return handler(srv, &capped{ServerStream: stream, ctx: ctx})
		})
	}
}

// capped is a stream whose ctx is its lease's.
type capped struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *capped) Context() context.Context { return s.ctx }

func (c *Capped) run(ctx context.Context, method string, req any, setTrailer func(metadata.MD), handle func(ctx context.Context) error) error {
	key := c.cfg.Key(ctx, method, req)
	if key == "" {
		return handle(ctx)
	}
	pass, err := c.gate.Enter(ctx, key, c.cfg.Permits(ctx, method, req), c.cfg.Wait)
	if err != nil {
		return refusal(ctx, err, setTrailer)
	}
	defer pass.Leave()
	work := pass.Context(ctx)
	err = handle(work)
	if err == nil || !pass.Lost(ctx, work) {
		return err
	}
	// gRPC would tell the client that it cancelled the call itself, or that the error is unknown.
	cause := context.Cause(work)
	if errors.Is(err, context.Canceled) || errors.Is(err, cause) || status.Code(err) == codes.Canceled {
		err = status.Error(codes.Aborted, "the permit was lost") // cause names the key, which is not the client's to know
	}
	return err
}

// hidden says why to the interceptors around this one. Its error names the key, so the client gets only the status.
type hidden struct {
	error
	code codes.Code
	told error // the text for the client
}

func (h hidden) Unwrap() error { return h.error }

func (h hidden) GRPCStatus() *status.Status { return status.New(h.code, h.told.Error()) }

// refusal returns the status of a call that got no permit.
func refusal(ctx context.Context, err error, setTrailer func(metadata.MD)) error {
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case gate.KindOf(err) == gate.KindInvalid:
		return hidden{err, codes.Internal, leasehold.ErrInvalid}
	case gate.KindOf(err) == gate.KindUnavailable:
		return hidden{err, codes.Unavailable, leasehold.ErrUnavailable}
	}
	after := gate.RetryAfter(err)
	setTrailer(metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt((after+time.Millisecond-1).Milliseconds(), 10)))
	refused := status.New(codes.ResourceExhausted, "no permit is free")
	if detailed, err := refused.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)}); err == nil {
		refused = detailed
	}
	return refused.Err()
}
