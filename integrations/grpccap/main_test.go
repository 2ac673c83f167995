package grpccap_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"

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
