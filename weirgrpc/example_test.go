package weirgrpc_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/weirgrpc"
)

// A server that grants each token 100 calls a second.
func Example() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), weir.PerSecond(100))
	if err != nil {
		log.Fatal(err)
	}
	o := weirgrpc.Options{
		Key:  weirgrpc.KeyByMetadata("authorization"),
		Skip: func(_ context.Context, method string) bool { return strings.HasPrefix(method, "/grpc.health.v1.") },
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(weirgrpc.UnaryServerInterceptor(limiter, o)),
		grpc.ChainStreamInterceptor(weirgrpc.StreamServerInterceptor(limiter, o)),
	)
	server.Stop() // register services and call Serve instead
}

// What an interceptor does, without a network around it.
func ExampleUnaryServerInterceptor() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), weir.PerHour(1))
	if err != nil {
		log.Fatal(err)
	}
	intercept := weirgrpc.UnaryServerInterceptor(limiter, weirgrpc.Options{Key: weirgrpc.KeyByMethod})
	handler := func(context.Context, any) (any, error) { return "hello", nil }
	for range 2 {
		answer, err := intercept(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/greeter/Hello"}, handler)
		fmt.Println(answer, status.Code(err))
	}
	// Output:
	// hello OK
	// <nil> ResourceExhausted
}

// A checker is what go-grpc-middleware's ratelimit package asks for.
func ExampleChecker() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), weir.PerHour(1))
	if err != nil {
		log.Fatal(err)
	}
	checker := weirgrpc.NewChecker(limiter, weirgrpc.Options{})
	fmt.Println(checker.Limit(context.Background()))
	fmt.Println(checker.Limit(context.Background()))
	// Output:
	// <nil>
	// rpc error: code = ResourceExhausted desc = quota exceeded
}
