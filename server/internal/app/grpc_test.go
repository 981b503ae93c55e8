package app

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// login asks for the demonstration rule of a path.
func login(t *testing.T, conn *grpc.ClientConn) (*rlsv3.RateLimitResponse, error) {
	t.Helper()
	return rateLimit(t.Context(), conn, "demo", descriptor("path", "/login"))
}

func wantCodes(t *testing.T, conn *grpc.ClientConn, want ...rlsv3.RateLimitResponse_Code) {
	t.Helper()
	for i, code := range want {
		if m, err := login(t, conn); err != nil || m.GetOverallCode() != code {
			t.Errorf("call %d: got %v, %v, want %v", i, m, err, code)
		}
	}
}

const (
	ok   = rlsv3.RateLimitResponse_OK
	over = rlsv3.RateLimitResponse_OVER_LIMIT
)

func TestServesEnvoy(t *testing.T) {
	t.Parallel()
	app := start(t, Options{})
	wantCodes(t, dialGRPC(t, app), ok, ok, ok, over)
	if status, body := get(t, app, "/v1/auth?domain=demo&path=/login"); status != http.StatusTooManyRequests {
		t.Errorf("the other protocol has another budget: %d %s", status, body)
	}
}

func TestServesEnvoyOnASocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	// As if the process that listened had been killed.
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	app := start(t, Options{GRPC: "unix:" + path})
	if addr := addrOf(app, "grpc"); addr != "unix:"+path {
		t.Errorf("printed as %q", addr)
	}
	wantCodes(t, dialGRPC(t, app), ok)
	second, err := New(Options{HTTP: "127.0.0.1:0", GRPC: "unix:" + path})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a socket that is in use was taken: %v", err)
	}
	wantCodes(t, dialGRPC(t, app), ok)
}

func TestServesJSON(t *testing.T) {
	t.Parallel()
	app := start(t, Options{})
	body := `{"domain":"demo","hitsAddend":3,"descriptors":[{"entries":[{"key":"path","value":"/login"}]}]}`
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if code, text := posted(t, app, "/json", body); code != want {
			t.Errorf("got %d %s, want %d", code, text, want)
		}
	}
	if code, body := get(t, app, "/healthcheck"); code != http.StatusOK || body != "OK" {
		t.Errorf("healthcheck: %d %q", code, body)
	}
	if code, body := get(t, app, "/rlconfig"); code != http.StatusOK || !strings.Contains(body, "demo.path_/login: unit=SECOND requests_per_unit=3, shadow_mode: false") {
		t.Errorf("rlconfig: %d %q", code, body)
	}
	if code, _ := get(t, app, "/elsewhere"); code != http.StatusNotFound {
		t.Errorf("elsewhere: %d", code)
	}
}

// TestGRPCReflectionNeedsAToken where callers need one. Health checks do not.
func TestGRPCReflectionNeedsAToken(t *testing.T) {
	t.Parallel()
	app := start(t, Options{GRPCTokenFile: passwordFile(t, oldToken)})
	conn := dialGRPC(t, app)
	if got := askHealth(t, conn, "ratelimit"); got != "SERVING" {
		t.Errorf("health: %s", got)
	}
	list := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}
	for _, method := range []string{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"} {
		for token, want := range map[string]codes.Code{"": codes.Unauthenticated, newToken: codes.Unauthenticated, oldToken: codes.OK} {
			ctx := t.Context()
			if token != "" {
				ctx = bearer(t, token)
			}
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			if err != nil {
				t.Fatal(err)
			}
			_ = stream.SendMsg(list) // the status of the call says why it failed
			if err := stream.RecvMsg(new(reflectionv1.ServerReflectionResponse)); status.Code(err) != want {
				t.Errorf("%s with %q: %v, want %v", method, token, err, want)
			}
		}
	}
}

// watchHealth returns a watch that has received its first status.
func watchHealth(t *testing.T, conn *grpc.ClientConn) healthv1.Health_WatchClient {
	t.Helper()
	watch, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	return watch
}

func askHealth(t *testing.T, conn *grpc.ClientConn, service string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	m, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: service})
	if err != nil {
		return status.Code(err).String()
	}
	return m.GetStatus().String()
}

func TestGRPCHealth(t *testing.T) {
	t.Parallel()
	app := unstopped(t, Options{DrainDelay: 10 * time.Second})
	conn := dialGRPC(t, app)
	for service, want := range map[string]string{"": "SERVING", "ratelimit": "SERVING", "other": "NotFound"} {
		if got := askHealth(t, conn, service); got != want {
			t.Errorf("%q: got %s, want %s", service, got, want)
		}
	}
	ctx, cut := context.WithTimeout(context.Background(), 20*time.Second)
	defer cut()
	watch, err := healthv1.NewHealthClient(conn).Watch(ctx, &healthv1.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	for i, want := range []string{"SERVING", "NOT_SERVING"} {
		if m, err := watch.Recv(); err != nil || m.GetStatus().String() != want {
			t.Errorf("told %v, %v, want %s", m, err, want)
		}
		if i == 0 {
			go func() { stopped <- app.Stop(ctx) }()
		}
	}
	if got := askHealth(t, conn, ""); got != "NOT_SERVING" {
		t.Errorf("while draining: %s", got)
	}
	// What comes during the delay is answered all the same.
	wantCodes(t, conn, ok)
	cut()
	<-stopped
}

func TestGRPCHealthWaitsForTheStore(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Store: "unix:///nowhere/redis.sock"})
	conn := dialGRPC(t, app)
	for service, want := range map[string]string{"": "SERVING", "ratelimit": "NOT_SERVING"} {
		if got := askHealth(t, conn, service); got != want {
			t.Errorf("%q: got %s, want %s", service, got, want)
		}
	}
	if code, _ := get(t, app, "/healthcheck"); code != http.StatusInternalServerError {
		t.Errorf("healthcheck: %d", code)
	}
	// The rule says local.
	if _, err := login(t, conn); err != nil {
		t.Errorf("a call: %v", err)
	}
}

// reflected asks by reflection.
func reflected(t *testing.T, stream reflectionv1.ServerReflection_ServerReflectionInfoClient, request *reflectionv1.ServerReflectionRequest) *reflectionv1.ServerReflectionResponse {
	t.Helper()
	if err := stream.Send(request); err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestGRPCReflection lists the services, and calls each by what reflection says of it, as
// programs do that have no file of its protocol. Older programs ask the older version.
func TestGRPCReflection(t *testing.T) {
	t.Parallel()
	conn := dialGRPC(t, start(t, Options{}))
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	m := reflected(t, stream, &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
	for _, s := range m.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	if want := []string{
		"envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health",
		"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
	}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	for _, name := range names {
		m := reflected(t, stream, &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}})
		all := new(descriptorpb.FileDescriptorSet)
		for _, raw := range m.GetFileDescriptorResponse().GetFileDescriptorProto() {
			file := new(descriptorpb.FileDescriptorProto)
			if err := proto.Unmarshal(raw, file); err != nil {
				t.Fatal(err)
			}
			all.File = append(all.File, file)
		}
		files, err := protodesc.NewFiles(all)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found, err := files.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			t.Fatal(err)
		}
		methods := found.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			callDescribed(t, conn, methods.Get(i))
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v", err)
	}
	// The older version has other names for the same messages.
	older, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
	if err != nil {
		t.Fatal(err)
	}
	if err := older.SendMsg(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	var answer reflectionv1.ServerReflectionResponse
	if err := older.RecvMsg(&answer); err != nil || len(answer.GetListServicesResponse().GetService()) != len(names) {
		t.Errorf("the older version: %v, %v", &answer, err)
	}
}

// callDescribed calls a method by its description, with an empty message.
func callDescribed(t *testing.T, conn *grpc.ClientConn, m protoreflect.MethodDescriptor) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	method := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(dynamicpb.NewMessage(m.Input())); err != nil {
		t.Fatal(err)
	}
	want := codes.InvalidArgument // one that says nothing
	if m.Parent().FullName() == "grpc.health.v1.Health" {
		want = codes.OK
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(dynamicpb.NewMessage(m.Output())); status.Code(err) != want {
		t.Errorf("%s: %v", method, err)
	}
}

// TestGRPCStreamsAreObserved like calls: they are counted, and those that panic are answered.
func TestGRPCStreamsAreObserved(t *testing.T) {
	t.Parallel()
	app := start(t, Options{})
	watch := watchHealth(t, dialGRPC(t, app))
	app.health.unwatch()
	if _, err := watch.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("ended with %v", err)
	}
	wantMetrics(t, app, `weir_grpc_calls_total{code="Canceled",method="/grpc.health.v1.Health/Watch"} 1`)
}

// TestGRPCStopIsBounded leaves a stream open, which a graceful stop waits for.
func TestGRPCStopIsBounded(t *testing.T) {
	t.Parallel()
	app := unstopped(t, Options{})
	stream, err := reflectionv1.NewServerReflectionClient(dialGRPC(t, app)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	wantCutOff(t, app)
}

// TestGRPCWatchersDoNotHoldUpTheEnd: who watches the health never hangs up.
func TestGRPCWatchersDoNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	app := start(t, Options{})
	watchHealth(t, dialGRPC(t, app))
	stop(t, app)
}

// TestGRPCRejectionsAreCounted by reason.
func TestGRPCRejectionsAreCounted(t *testing.T) {
	t.Parallel()
	app := start(t, Options{})
	if _, err := rateLimit(t.Context(), dialGRPC(t, app), strings.Repeat("x", 300<<10)); err != nil {
		t.Error(err)
	}
	other := connect(t, addrOf(app, "grpc"))
	if _, err := io.WriteString(other, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, other); err != nil {
		t.Fatal(err)
	}
	wantMetrics(t, app, `weir_rejected_total{listener="grpc",reason="message"} 1`, `weir_rejected_total{listener="grpc",reason="handshake"} 1`)
}

// TestGRPCLimits bounds header lists and messages as the options say.
func TestGRPCLimits(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Limits: Limits{GRPCMaxHeaderBytes: 2000, GRPCMaxMessageBytes: 3000}})
	client := rlsv3.NewRateLimitServiceClient(dialGRPC(t, app))
	for _, test := range []struct {
		header, message int
		want            codes.Code
	}{
		{1500, 2500, codes.InvalidArgument}, // without descriptors
		{2000, 10, codes.Internal},          // its client knows the limit
		{10, 3001, codes.OK},                // over the limit
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-large", strings.Repeat("h", test.header))
		if _, err := client.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: strings.Repeat("m", test.message)}); status.Code(err) != test.want {
			t.Errorf("%d bytes of header, %d of message: %v", test.header, test.message, err)
		}
	}
}

// TestGRPCRetiredConnectionsAreCounted: idle and old ones end by different reasons.
func TestGRPCRetiredConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	for reason, o := range map[string]Options{
		"idle": {Limits: Limits{GRPCIdleTimeout: 50 * time.Millisecond}},
		"age":  {GRPCConnectionAge: 50 * time.Millisecond},
	} {
		app := start(t, o)
		conn := dialGRPC(t, app)
		conn.Connect()
		want := `weir_grpc_connections_retired_total{reason="` + reason + `"}`
		testserver.Eventually(t, want, func() bool { return strings.Contains(metricsOf(t, app), want) })
	}
}
