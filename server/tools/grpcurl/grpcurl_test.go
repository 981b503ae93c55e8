// Package grpcurl asks Weir what it serves, and calls it, as the program of that name does: without
// a file of its protocol. It is a module of its own, so that nobody who uses Weir depends on the
// program.
package grpcurl

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fullstorydev/grpcurl"
	"github.com/jhump/protoreflect/grpcreflect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/server/internal/app"
)

const service = "envoy.service.ratelimit.v3.RateLimitService"

// dial connects to a server with the demonstration rules, which ends with the test.
func dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	server, err := app.New(app.Options{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(server.Addrs()[1].Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = conn.Close()
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// TestGRPCurl lists, describes and calls.
func TestGRPCurl(t *testing.T) {
	conn := dial(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client := grpcreflect.NewClientAuto(ctx, conn)
	defer client.Reset()
	source := grpcurl.DescriptorSourceFromServer(ctx, client)
	services, err := grpcurl.ListServices(source)
	if err != nil || !slices.Contains(services, service) || !slices.Contains(services, "grpc.health.v1.Health") {
		t.Fatalf("list: %v, %v", services, err)
	}
	for _, name := range services {
		methods, err := grpcurl.ListMethods(source, name)
		if err != nil || len(methods) == 0 {
			t.Errorf("list %s: %v, %v", name, methods, err)
		}
		found, err := source.FindSymbol(name)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := grpcurl.GetDescriptorText(found, source); err != nil || !strings.Contains(text, "rpc ") {
			t.Errorf("describe %s: %s, %v", name, text, err)
		}
	}
	for method, c := range map[string]struct{ asked, want string }{
		service + "/ShouldRateLimit": {
			`{"domain":"demo","descriptors":[{"entries":[{"key":"path","value":"/login"}]}]}`, `"overallCode": "OK"`,
		},
		"grpc.health.v1.Health/Check": {`{"service":"ratelimit"}`, `"status": "SERVING"`},
	} {
		if said := invoke(t, ctx, conn, source, method, c.asked); !strings.Contains(said, c.want) {
			t.Errorf("%s: %s", method, said)
		}
	}
}

// invoke calls a method with a message in JSON, and returns the answer.
func invoke(t *testing.T, ctx context.Context, conn *grpc.ClientConn, source grpcurl.DescriptorSource, method, asked string) string {
	t.Helper()
	parser, formatter, err := grpcurl.RequestParserAndFormatter(grpcurl.FormatJSON, source, strings.NewReader(asked), grpcurl.FormatOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	handler := &grpcurl.DefaultEventHandler{Out: &out, Formatter: formatter}
	if err := grpcurl.InvokeRPC(ctx, source, conn, method, nil, handler, parser.Next); err != nil {
		t.Fatal(err)
	}
	if handler.Status.Err() != nil {
		t.Errorf("%s: %v", method, handler.Status)
	}
	return out.String()
}
