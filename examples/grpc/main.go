// Command grpc serves a clock: a token may ask for the time sixty times a minute,
// ten of them at once, and watch two streams of it at a time.
//
//	go run ./grpc
package main

import (
	"context"
	"log"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/weirgrpc"
)

func main() {
	server, err := newServer(memstore.New(memstore.Options{}), ticking{time.Second})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:8095")
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("serving %s at %s", clockService.ServiceName, listener.Addr())
	log.Fatal(server.Serve(listener))
}

func newServer(store weir.Taker, c clock) (*grpc.Server, error) {
	calls, err := weir.NewLimiter(store, "calls", weir.Limit{Name: "calls", Count: 60, Period: time.Minute, Burst: 10})
	if err != nil {
		return nil, err
	}
	// A place is renewed as long as its stream is open. Those of a host that died
	// are free after half a minute.
	streams, err := weir.NewLimiter(store, "streams", weir.Limit{Name: "streams", Algorithm: weir.Concurrency, Count: 2, Period: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(weirgrpc.UnaryServerInterceptor(calls, byToken)),
		grpc.ChainStreamInterceptor(weirgrpc.StreamServerInterceptor(streams, byToken)),
	)
	server.RegisterService(&clockService, c)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return server, nil
}

// byToken limits each token, of which a digest is stored, and exempts health checks. Check
// the tokens first, or a client that invents one gets a budget of its own.
var byToken = weirgrpc.Options{
	Key:     weirgrpc.KeyByMetadata("authorization"),
	Skip:    func(_ context.Context, method string) bool { return strings.HasPrefix(method, "/grpc.health.v1.") },
	OnError: func(_ context.Context, method string, err error) { log.Printf("%s: %v", method, err) },
}

// ticking is a clock that says every so often what time it is.
type ticking struct{ every time.Duration }

// Now returns the time.
func (t ticking) Now(context.Context, *emptypb.Empty) (*timestamppb.Timestamp, error) {
	return timestamppb.Now(), nil
}

// Watch sends the time, at once and then every so often, until the client leaves.
func (t ticking) Watch(_ *emptypb.Empty, stream grpc.ServerStreamingServer[timestamppb.Timestamp]) error {
	ticker := time.NewTicker(t.every)
	defer ticker.Stop()
	for {
		if err := stream.Send(timestamppb.Now()); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-ticker.C:
		}
	}
}
