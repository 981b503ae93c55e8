package main

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/memstore"
)

// dial serves the example over a store whose clock stands.
func dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	server, err := newServer(memstore.New(memstore.Options{Now: storetest.NewClock().Now}), ticking{time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	listener := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:buffer", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return conn
}

func as(token string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), "authorization", token)
}

// refused returns the wait and the limit that a refusal names.
func refused(t *testing.T, err error) (wait time.Duration, limit string) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("%v, want a refusal", err)
	}
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.RetryInfo:
			wait = detail.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			limit = detail.GetViolations()[0].GetSubject()
		}
	}
	return wait, limit
}

func TestCalls(t *testing.T) {
	t.Parallel()
	conn := dial(t)
	var header metadata.MD
	for i := range 10 {
		if err := conn.Invoke(as("a"), methodNow, &emptypb.Empty{}, new(timestamppb.Timestamp), grpc.Header(&header)); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if got := header.Get("ratelimit"); len(got) != 1 || got[0] != `"calls";r=0;t=10` {
		t.Errorf("ratelimit %q", got)
	}
	err := conn.Invoke(as("a"), methodNow, &emptypb.Empty{}, new(timestamppb.Timestamp))
	if wait, limit := refused(t, err); wait != time.Second || limit != "calls" {
		t.Errorf("wait %v for %q", wait, limit)
	}
	if err := conn.Invoke(as("b"), methodNow, &emptypb.Empty{}, new(timestamppb.Timestamp)); err != nil {
		t.Errorf("another token: %v", err)
	}
	for range 20 {
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(as("a"), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Errorf("health: %v", err)
		}
	}
}

// open opens a stream and reads its first message.
func open(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := conn.NewStream(ctx, &clockService.Streams[0], methodWatch)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return stream.RecvMsg(new(timestamppb.Timestamp))
}

func TestStreams(t *testing.T) {
	t.Parallel()
	conn := dial(t)
	first, leave := context.WithCancel(as("a"))
	defer leave()
	second, stay := context.WithCancel(as("a"))
	defer stay()
	for i, ctx := range []context.Context{first, second} {
		if err := open(ctx, conn); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	if wait, limit := refused(t, open(as("a"), conn)); wait != time.Second || limit != "streams" {
		t.Errorf("wait %v for %q", wait, limit)
	}
	leave()
	// The server notices a little later that a stream has ended.
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		err := open(second, conn)
		if err == nil {
			break
		}
		if refused(t, err); time.Now().After(end) {
			t.Fatal("the place of a stream that ended is not free")
		}
	}
}
