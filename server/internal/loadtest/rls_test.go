package loadtest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/loadtest"
)

const (
	granted = rlsv3.RateLimitResponse_OK
	refused = rlsv3.RateLimitResponse_OVER_LIMIT
)

// A service answers every call with answer.
type service struct {
	answer func(ctx context.Context, key string) (rlsv3.RateLimitResponse_Code, error)
}

func (s service) ShouldRateLimit(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	entry := r.GetDescriptors()[0].GetEntries()[0]
	if r.GetDomain() != "shop" || entry.GetKey() != "user" {
		return nil, status.Errorf(codes.InvalidArgument, "unexpected request %v", r)
	}
	code, err := s.answer(ctx, entry.GetValue())
	return &rlsv3.RateLimitResponse{OverallCode: code}, err
}

// listen serves a service with grpc-go.
func listen(t *testing.T, l net.Listener, s service) *grpc.Server {
	server := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(server, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return server
}

func listener(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func rlsLoad(l net.Listener) loadtest.RLSLoad {
	return loadtest.RLSLoad{
		Address: l.Addr().String(), Domain: "shop", Entry: "user", Keys: 3, Connections: 2, Callers: 7,
		Duration: time.Minute, Timeout: 10 * time.Second,
	}
}

// enough is the number of calls after which tests end their loads.
const enough = 200

func TestRLSLoadSendsWhatEnvoySends(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	keys, traces := map[string]int{}, map[string]bool{}
	var wrong error
	var inFlight, most atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	l := listener(t)
	listen(t, l, service{func(ctx context.Context, key string) (rlsv3.RateLimitResponse_Code, error) {
		if n := inFlight.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer inFlight.Add(-1)
		fields, _ := metadata.FromIncomingContext(ctx)
		deadline, limited := ctx.Deadline()
		mu.Lock()
		defer mu.Unlock()
		if keys[key]++; keys["k0"]+keys["k1"]+keys["k2"] == enough {
			stop()
		}
		traces[strings.Join(fields["traceparent"], ",")] = true
		if !limited || time.Until(deadline) > 10*time.Second || strings.Join(fields["authorization"], ",") != "Bearer secret" {
			wrong = errors.New("wrong deadline or token")
		}
		if key == "k0" {
			return refused, nil
		}
		return granted, nil
	}})
	load := rlsLoad(l)
	load.Token, load.Traceparent = "secret", true
	got, err := load.Run(ctx)
	if err != nil || got.Failed > 0 || got.Failure != nil || got.Reconnects > 0 || wrong != nil {
		t.Fatalf("got %+v, %v, %v; want no failures", got, err, wrong)
	}
	// Each connection's first call is not counted.
	if total := keys["k0"] + keys["k1"] + keys["k2"]; len(keys) != 3 || got.Requests() != total-2 || got.Latency.TotalCount() != int64(got.Requests()) {
		t.Errorf("counted %d of %v", got.Requests(), keys)
	}
	if got.Refused < keys["k0"]-2 || got.Refused > keys["k0"] || got.Granted == 0 {
		t.Errorf("got %d granted and %d refused of %v", got.Granted, got.Refused, keys)
	}
	if len(traces) != got.Requests()+2 || traces[""] {
		t.Errorf("%d calls had %d trace contexts", got.Requests()+2, len(traces))
	}
	for trace := range traces {
		if len(trace) != 55 || !strings.HasPrefix(trace, "00-") || !strings.HasSuffix(trace, "-00") {
			t.Fatalf("the trace context is %q", trace)
		}
	}
	if n := most.Load(); n > 7 {
		t.Errorf("%d calls were in flight; want at most 7", n)
	}
}

func TestRLSLoadCountsFailures(t *testing.T) {
	t.Parallel()
	for want, answer := range map[string]func(n int64) (rlsv3.RateLimitResponse_Code, error){
		"grpc-status Unavailable: no store": func(int64) (rlsv3.RateLimitResponse_Code, error) {
			return granted, status.Error(codes.Unavailable, "no store")
		},
		"the overall code is UNKNOWN": func(int64) (rlsv3.RateLimitResponse_Code, error) { return 0, nil },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			ctx, stop := context.WithCancel(t.Context())
			l := listener(t)
			listen(t, l, service{func(context.Context, string) (rlsv3.RateLimitResponse_Code, error) {
				n := calls.Add(1)
				if n == enough {
					stop()
				}
				if n > 2 && n%2 == 0 {
					return answer(n)
				}
				return granted, nil
			}})
			load := rlsLoad(l)
			got, err := load.Run(ctx)
			if err != nil || got.Failure == nil || got.Failure.Error() != want {
				t.Fatalf("got %v, %v; want %q", got.Failure, err, want)
			}
			if even := calls.Load()/2 - 1; int64(got.Failed) != even || got.Granted == 0 {
				t.Errorf("counted %d failures and %d granted; want %d failures", got.Failed, got.Granted, even)
			}
		})
	}
}

func TestRLSLoadNeedsAnAnswer(t *testing.T) {
	t.Parallel()
	l := listener(t)
	listen(t, l, service{func(context.Context, string) (rlsv3.RateLimitResponse_Code, error) {
		return 0, status.Error(codes.Unauthenticated, "who are you")
	}})
	load := rlsLoad(l)
	if got, err := load.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Unauthenticated: who are you") || got.Requests() != 0 {
		t.Errorf("got %v", err)
	}
	load.Address = "127.0.0.1:1"
	if _, err := load.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
}

// A server that drains answers the calls that it has begun, and the next one gets the rest.
func TestRLSLoadFollowsGoAway(t *testing.T) {
	t.Parallel()
	l := listener(t)
	yes := service{func(context.Context, string) (rlsv3.RateLimitResponse_Code, error) { return granted, nil }}
	server := listen(t, l, yes)
	load := rlsLoad(l)
	ctx, cancel := context.WithCancel(t.Context())
	var got loadtest.RLSReport
	var err error
	done := make(chan struct{})
	go func() { defer close(done); got, err = load.Run(ctx) }()
	for range 3 {
		time.Sleep(50 * time.Millisecond)
		again, failure := net.Listen("tcp", load.Address)
		for i := 0; failure != nil; i++ {
			server.GracefulStop() // frees the port
			if again, failure = net.Listen("tcp", load.Address); i > 100 && failure != nil {
				t.Fatal(failure)
			}
		}
		server = listen(t, again, yes)
	}
	time.Sleep(50 * time.Millisecond)
	cancel()
	<-done
	if err != nil || got.Failed > 0 || got.Granted == 0 || got.Reconnects < 2 {
		t.Errorf("got %+v, %v; want several connections and no failures", got, err)
	}
}

// refuse answers a call with one DATA frame for each byte.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Trailer", "Grpc-Status")
	for _, b := range []byte{0, 0, 0, 0, 2, 1 << 3, byte(refused)} {
		_, _ = w.Write([]byte{b})
		w.(http.Flusher).Flush()
	}
	w.Header().Set("Grpc-Status", "0")
}

// listenBare serves HTTP/2 by prior knowledge.
func listenBare(t *testing.T, l net.Listener, settings *http.HTTP2Config, handler http.HandlerFunc) {
	server := &http.Server{Handler: handler, HTTP2: settings, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
}

// A server may allow few calls and few bytes, and forbid a table of headers.
func TestRLSLoadObeysSettings(t *testing.T) {
	t.Parallel()
	var calls, inFlight, most atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	handler := func(w http.ResponseWriter, r *http.Request) {
		if n := inFlight.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer inFlight.Add(-1)
		if calls.Add(1) == enough {
			stop()
		}
		body, err := io.ReadAll(r.Body)
		request := new(rlsv3.RateLimitRequest)
		if err != nil || len(body) < 5 || proto.Unmarshal(body[5:], request) != nil || request.GetDomain() != "shop" || len(r.Header.Get("Traceparent")) != 55 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		refuse(w)
	}
	l := listener(t)
	listenBare(t, l, &http.HTTP2Config{MaxConcurrentStreams: 3, MaxReceiveBufferPerStream: 7, MaxDecoderHeaderTableSize: 200}, handler)
	load := rlsLoad(l)
	load.Connections, load.Callers, load.Traceparent = 1, 20, true
	got, err := load.Run(ctx)
	if err != nil || got.Failure != nil || got.Refused == 0 || got.Refused != got.Requests() {
		t.Errorf("got %+v, %v; want all refused", got, err)
	}
	if n := most.Load(); n > 3 {
		t.Errorf("%d calls were in flight; want at most 3", n)
	}
}

// A connection on which nothing arrives has failed with its calls, and is replaced.
func TestRLSLoadGivesUpASilentConnection(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	l := listener(t)
	listenBare(t, l, nil, func(w http.ResponseWriter, r *http.Request) {
		n := calls.Add(1)
		if n > 1 && n <= 8 {
			<-r.Context().Done() // until the client closes the connection
		}
		if n == enough {
			stop()
		}
		refuse(w)
	})
	load := rlsLoad(l)
	load.Connections, load.Timeout = 1, time.Millisecond
	got, err := load.Run(ctx)
	if err != nil || got.Failed < 7 || got.Failure == nil || !strings.Contains(got.Failure.Error(), "timeout") || got.Reconnects < 1 || got.Refused == 0 {
		t.Errorf("got %+v, %v; want 7 failures and another connection", got, err)
	}
}

func TestDialIdle(t *testing.T) {
	t.Parallel()
	l := listener(t)
	listen(t, l, service{})
	closeAll, err := loadtest.DialIdle(t.Context(), l.Addr().String(), nil, 20)
	if err != nil {
		t.Fatal(err)
	}
	closeAll()
	if _, err := loadtest.DialIdle(t.Context(), "127.0.0.1:1", nil, 1); err == nil {
		t.Error("got no error without a server")
	}
}

func TestAbsurdRLSLoads(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*loadtest.RLSLoad){
		"duration":    func(l *loadtest.RLSLoad) { l.Duration = 0 },
		"callers":     func(l *loadtest.RLSLoad) { l.Callers = 0 },
		"connections": func(l *loadtest.RLSLoad) { l.Connections = 8 },
		"timeout":     func(l *loadtest.RLSLoad) { l.Timeout = 0 },
	} {
		load := loadtest.RLSLoad{Keys: 1, Connections: 1, Callers: 1, Duration: time.Second, Timeout: time.Second}
		change(&load)
		invalid := new(weir.InvalidError)
		if _, err := load.Run(t.Context()); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
