package weirgrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/weirgrpc"
)

// service answers each message with an empty one.
type service struct {
	grpc_testing.UnimplementedTestServiceServer
}

func (service) UnaryCall(context.Context, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	return &grpc_testing.SimpleResponse{}, nil
}

func (service) EmptyCall(context.Context, *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	return &grpc_testing.Empty{}, nil
}

func (service) FullDuplexCall(stream grpc_testing.TestService_FullDuplexCallServer) error {
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// frozen is a store whose clock stands.
func frozen() weir.Taker {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	return memstore.New(memstore.Options{Now: func() time.Time { return now }})
}

// broken is a store that fails.
type broken struct{ err error }

func (b broken) Take(_ context.Context, acts []*weir.Act) {
	for _, act := range acts {
		act.Err = b.err
	}
}

func newLimiter(t testing.TB, taker weir.Taker, limits ...weir.Limit) *weir.Limiter {
	t.Helper()
	l, err := weir.NewLimiter(taker, "test", limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve runs the service behind the interceptors and returns a client of it.
func serve(t *testing.T, limiter *weir.Limiter, o weirgrpc.Options, dial ...grpc.DialOption) grpc_testing.TestServiceClient {
	t.Helper()
	server := grpc.NewServer(
		grpc.UnaryInterceptor(weirgrpc.UnaryServerInterceptor(limiter, o)),
		grpc.StreamInterceptor(weirgrpc.StreamServerInterceptor(limiter, o)),
	)
	return connect(t, server, dial...)
}

func connect(t *testing.T, server *grpc.Server, dial ...grpc.DialOption) grpc_testing.TestServiceClient {
	t.Helper()
	grpc_testing.RegisterTestServiceServer(server, service{})
	listener := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	dial = append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:buffer", dial...)
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
	return grpc_testing.NewTestServiceClient(conn)
}

func call(client grpc_testing.TestServiceClient, pairs ...string) error {
	ctx := metadata.AppendToOutgoingContext(context.Background(), pairs...)
	_, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
	return err
}

// details returns the delay of a refusal and the names of the limits.
func details(t *testing.T, err error) (delay time.Duration, subjects []string) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("got %v, want a refusal", err)
	}
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.RetryInfo:
			delay = detail.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			for _, violation := range detail.GetViolations() {
				subjects = append(subjects, violation.GetSubject()+" "+violation.GetDescription())
			}
		default:
			t.Errorf("detail %T", detail)
		}
	}
	return delay, subjects
}

func TestUnary(t *testing.T) {
	t.Parallel()
	client := serve(t, newLimiter(t, frozen(), weir.Limit{Name: "m", Count: 2, Period: time.Minute}, weir.PerDay(100)), weirgrpc.Options{})
	var header, trailer metadata.MD
	ask := func() error {
		_, err := client.UnaryCall(context.Background(), &grpc_testing.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
		return err
	}
	for _, want := range []string{`"m";r=1;t=30`, `"m";r=0;t=60`} {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{want}, header.Get("ratelimit")); diff != "" {
			t.Errorf("ratelimit (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{`"m";q=2;w=60, "100/day";q=100;w=86400`}, header.Get("ratelimit-policy")); diff != "" {
			t.Errorf("ratelimit-policy (-want +got):\n%s", diff)
		}
	}
	delay, subjects := details(t, ask())
	if diff := cmp.Diff([]string{"m 2/min"}, subjects); delay != 30*time.Second || diff != "" {
		t.Errorf("delay %v, subjects (-want +got):\n%s", delay, diff)
	}
	for name, want := range map[string]string{"grpc-retry-pushback-ms": "30000", "ratelimit": `"m";r=0;t=30`} {
		if diff := cmp.Diff([]string{want}, trailer.Get(name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestNever(t *testing.T) {
	t.Parallel()
	var trailer metadata.MD
	client := serve(t, newLimiter(t, frozen(), weir.PerMinute(2)), weirgrpc.Options{
		NoMetadata: true,
		Cost: func(_ context.Context, _ string, message any) int64 {
			return int64(message.(*grpc_testing.SimpleRequest).GetResponseSize())
		},
	})
	_, err := client.UnaryCall(context.Background(), &grpc_testing.SimpleRequest{ResponseSize: 3}, grpc.Trailer(&trailer))
	if delay, subjects := details(t, err); delay != 0 || subjects != nil {
		t.Errorf("delay %v, subjects %v", delay, subjects)
	}
	if diff := cmp.Diff([]string{"-1"}, trailer.Get("grpc-retry-pushback-ms")); diff != "" || len(trailer.Get("ratelimit")) > 0 {
		t.Errorf("trailer %v, pushback (-want +got):\n%s", trailer, diff)
	}
}

// TestRetryPolicy has the client's own retries wait for what the server says.
func TestRetryPolicy(t *testing.T) {
	t.Parallel()
	const policy = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":2,"initialBackoff":"20s","maxBackoff":"20s",
		"backoffMultiplier":1,"retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]}`
	client := serve(t, newLimiter(t, memstore.New(memstore.Options{}), weir.Per(1, 50*time.Millisecond)), weirgrpc.Options{},
		grpc.WithDefaultServiceConfig(policy))
	begin := time.Now()
	for range 3 {
		if err := call(client); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begin); took < 90*time.Millisecond || took > 15*time.Second {
		t.Errorf("three calls at one per 50 ms took %v", took)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	byHop := weirgrpc.KeyByIP(clientip.Must(clientip.TrustedHops(1)))
	for name, test := range map[string]struct {
		key       weirgrpc.KeyFunc
		one, two  []string
		different bool
	}{
		"default":            {nil, []string{"x-forwarded-for", "1.1.1.1"}, []string{"x-forwarded-for", "2.2.2.2"}, false},
		"proxy":              {byHop, []string{"x-forwarded-for", "1.1.1.1"}, []string{"x-forwarded-for", "2.2.2.2"}, true},
		"proxy, same":        {byHop, []string{"x-forwarded-for", "3.3.3.3, 1.1.1.1"}, []string{"x-forwarded-for", "1.1.1.1"}, false},
		"metadata":           {weirgrpc.KeyByMetadata("Token"), []string{"token", "a"}, []string{"token", "b"}, true},
		"metadata, same":     {weirgrpc.KeyByMetadata("Token"), []string{"token", "a"}, []string{"token", "a"}, false},
		"metadata, none":     {weirgrpc.KeyByMetadata("Token"), nil, nil, false},
		"method":             {weirgrpc.KeyByMethod, []string{"token", "a"}, []string{"token", "b"}, false},
		"joined":             {weirgrpc.JoinKeys(weirgrpc.KeyByMethod, weirgrpc.KeyByMetadata("token")), []string{"token", "a"}, []string{"token", "b"}, true},
		"joined, an unknown": {weirgrpc.JoinKeys(byHop, weirgrpc.KeyByMetadata("token")), []string{"token", "a"}, []string{"token", "b"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := serve(t, newLimiter(t, frozen(), weir.PerMinute(1)), weirgrpc.Options{Key: test.key})
			if err := call(client, test.one...); err != nil {
				t.Fatal(err)
			}
			if err := call(client, test.two...); (err == nil) != test.different {
				t.Errorf("the second: %v", err)
			}
		})
	}
}

func TestKeyByIP(t *testing.T) {
	t.Parallel()
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 1}})
	if key, err := weirgrpc.KeyByIP(clientip.RemoteAddr())(ctx, ""); err != nil || key != "192.0.2.7" {
		t.Errorf("got %q, %v", key, err)
	}
}

func TestMethodsApart(t *testing.T) {
	t.Parallel()
	skip := func(_ context.Context, method string) bool { return method == "/grpc.testing.TestService/EmptyCall" }
	client := serve(t, newLimiter(t, frozen(), weir.PerMinute(1)), weirgrpc.Options{Key: weirgrpc.KeyByMethod, Skip: skip})
	for i := range 3 {
		if err := call(client); (err == nil) != (i == 0) {
			t.Errorf("call %d: %v", i, err)
		}
		if _, err := client.EmptyCall(context.Background(), &grpc_testing.Empty{}); err != nil {
			t.Errorf("skipped: %v", err)
		}
	}
	if got := exchange(t, client, 1); got != 1 {
		t.Errorf("a method that was not called yet: %d messages", got)
	}
}

// exchange opens a stream and returns how many of n messages came back.
func exchange(t *testing.T, client grpc_testing.TestServiceClient, n int) int {
	t.Helper()
	stream, err := client.FullDuplexCall(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		// What can be sent says nothing about a refusal: receiving does.
		_ = stream.Send(&grpc_testing.StreamingOutputCallRequest{})
		if _, err := stream.Recv(); err != nil {
			details(t, err)
			return i
		}
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	return n
}

func TestStreams(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		perMessage, skip bool
		want             [3]int
	}{
		"opening":     {false, false, [3]int{10, 10, 0}},
		"per message": {true, false, [3]int{2, 0, 0}},
		"skipped":     {true, true, [3]int{10, 10, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := serve(t, newLimiter(t, frozen(), weir.PerMinute(2)), weirgrpc.Options{
				PerMessage: test.perMessage, Skip: func(context.Context, string) bool { return test.skip },
			})
			for i, want := range test.want {
				if got := exchange(t, client, 10); got != want {
					t.Errorf("stream %d: %d messages, want %d", i, got, want)
				}
			}
		})
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		closed bool
		code   codes.Code
	}{
		"open":   {weir.ErrAmbiguous, false, codes.OK},
		"closed": {weir.ErrAmbiguous, true, codes.Unavailable},
		"ours":   {&weir.InvalidError{Field: "id"}, false, codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := make(chan error, 2)
			client := serve(t, newLimiter(t, broken{test.err}, weir.PerMinute(1)), weirgrpc.Options{
				FailClosed: test.closed,
				OnError:    func(_ context.Context, _ string, err error) { told <- err },
			})
			if err := call(client); status.Code(err) != test.code {
				t.Errorf("got %v, want %v", err, test.code)
			}
			// bufconn has no addresses, so that the key is told first.
			if first, second := <-told, <-told; !errors.Is(first, clientip.ErrNoAddress) || !errors.Is(second, test.err) {
				t.Errorf("told %v, %v", first, second)
			}
		})
	}
}

// TestChecker uses the limiter as go-grpc-middleware does.
func TestChecker(t *testing.T) {
	t.Parallel()
	var checker interface {
		Limit(ctx context.Context) error
	} = weirgrpc.NewChecker(newLimiter(t, frozen(), weir.PerMinute(1)), weirgrpc.Options{
		Skip: func(_ context.Context, method string) bool { return strings.HasSuffix(method, "/EmptyCall") },
	})
	client := connect(t, grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := checker.Limit(ctx); err != nil {
				return nil, status.Errorf(codes.ResourceExhausted, "%s is rejected: %s", info.FullMethod, err)
			}
			return next(ctx, req)
		})))
	if err := call(client); err != nil {
		t.Fatal(err)
	}
	if err := call(client); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want a refusal", err)
	}
	if _, err := client.EmptyCall(context.Background(), &grpc_testing.Empty{}); err != nil {
		t.Errorf("skipped: %v", err)
	}
}

func TestALimiterIsNeeded(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(){
		"unary":   func() { weirgrpc.UnaryServerInterceptor(nil, weirgrpc.Options{}) },
		"stream":  func() { weirgrpc.StreamServerInterceptor(nil, weirgrpc.Options{}) },
		"checker": func() { weirgrpc.NewChecker(nil, weirgrpc.Options{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			build()
		}()
	}
}

// TestAlternatives: the metadata names the alternative, and a correction concerns only the
// one that was granted.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	store := frozen()
	free := newLimiter(t, store, weir.Limit{Name: "free", Count: 2, Period: time.Hour})
	credits := newLimiter(t, store, weir.Limit{Name: "credits", Count: 9, Period: 24 * time.Hour})
	both, err := free.Otherwise(credits.Keeping(3))
	if err != nil {
		t.Fatal(err)
	}
	client := serve(t, both, weirgrpc.Options{
		Key:     func(context.Context, string) (string, error) { return "k", nil },
		Cost:    func(context.Context, string, any) int64 { return 2 },
		Charge:  func(context.Context, weirgrpc.Response) int64 { return 3 },
		OnError: func(_ context.Context, _ string, err error) { t.Error(err) },
	})
	for i, want := range []string{"1", "2", "2", "1 in the trailer"} {
		var header, trailer metadata.MD
		_, err := client.UnaryCall(context.Background(), &grpc_testing.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
		got := strings.Join(header.Get("weir-alternative"), " ")
		if err != nil {
			got = strings.Join(trailer.Get("weir-alternative"), " ") + " in the trailer"
		}
		if got != want {
			t.Errorf("call %d: %v by alternative %q, want %q", i, err, got, want)
		}
	}
	if d, err := credits.Peek(t.Context(), "k"); err != nil || d.Remaining != 3 {
		t.Errorf("credits: %v, %v, want 9 without two calls of 3", d, err)
	}
}

// TestMetadataKey: the key of a token is the one that the interceptor charges.
func TestMetadataKey(t *testing.T) {
	t.Parallel()
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer secret"))
	charged, err := weirgrpc.KeyByMetadata("Authorization")(ctx, "/a/B")
	if err != nil || charged != weirgrpc.MetadataKey("Bearer secret") || charged == weirgrpc.MetadataKey("") {
		t.Errorf("%q, %v: want the key of the token", charged, err)
	}
}
