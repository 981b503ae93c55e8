package weirgrpc_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/weirgrpc"
)

// A server that grants each token 100 calls a second.
func Example() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api", weir.PerSecond(100))
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
	// Output:
}

// What an interceptor does, without a network around it.
func ExampleUnaryServerInterceptor() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api", weir.PerHour(1))
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

// Batch jobs leave 30 of 100 units to others, on the same budget.
func ExampleUnaryServerInterceptor_priorities() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api", weir.PerHour(100))
	if err != nil {
		log.Fatal(err)
	}
	o := weirgrpc.Options{Key: weirgrpc.KeyByMethod}
	interactive, batch := weirgrpc.UnaryServerInterceptor(limiter, o), weirgrpc.UnaryServerInterceptor(limiter.Keeping(30), o)
	intercept := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if class := metadata.ValueFromIncomingContext(ctx, "class"); len(class) == 1 && class[0] == "batch" {
			return batch(ctx, req, info, next)
		}
		return interactive(ctx, req, info, next)
	}

	handler := func(context.Context, any) (any, error) { return "hello", nil }
	for _, class := range []string{"batch", "interactive"} {
		ctx, granted := metadata.NewIncomingContext(context.Background(), metadata.Pairs("class", class)), 0
		for range 200 {
			if _, err := intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/greeter/Hello"}, handler); err == nil {
				granted++
			}
		}
		fmt.Println(class, granted)
	}
	// Output:
	// batch 70
	// interactive 30
}

// A token may have two streams open at a time.
func ExampleStreamServerInterceptor() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api",
		weir.Limit{Name: "streams", Algorithm: weir.Concurrency, Count: 2, Period: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	streams := weirgrpc.StreamServerInterceptor(limiter, weirgrpc.Options{Key: weirgrpc.KeyByMetadata("authorization")})
	server := grpc.NewServer(grpc.ChainStreamInterceptor(streams))
	server.Stop() // register services and call Serve instead
	// Output:
}

// Calls are charged for the bytes of their answers; those that fail are free.
func ExampleOptions_charge() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api", weir.PerHour(1000))
	if err != nil {
		log.Fatal(err)
	}
	intercept := weirgrpc.UnaryServerInterceptor(limiter, weirgrpc.Options{
		Key:  weirgrpc.KeyByMethod,
		Cost: func(context.Context, string, any) int64 { return 500 },
		Charge: func(_ context.Context, r weirgrpc.Response) int64 {
			if r.Code != codes.OK {
				return 0
			}
			return r.Bytes
		},
	})
	answer := wrapperspb.Bytes(make([]byte, 397)) // 400 bytes with its tag and length
	for range 3 {
		_, err := intercept(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/files/Get"},
			func(context.Context, any) (any, error) { return answer, nil })
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
}

// A client that waits up to a minute where a server has had enough of it.
func ExampleUnaryClientInterceptor() {
	patient := weirgrpc.UnaryClientInterceptor(weirgrpc.ClientOptions{MaxWait: time.Minute})
	conn, err := grpc.NewClient("localhost:8095",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(patient))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(conn.Target(), conn.Close()) // make calls instead
	// Output: localhost:8095 <nil>
}

// A checker is what go-grpc-middleware's ratelimit package asks for.
func ExampleChecker() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api", weir.PerHour(1))
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
