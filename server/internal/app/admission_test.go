package app

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/server/internal/admission"
)

func TestWrongLimits(t *testing.T) {
	t.Parallel()
	for field, l := range map[string]Limits{
		"grpc max connections":  {GRPCMaxConnections: -1},
		"grpc max streams":      {GRPCMaxStreams: -1},
		"grpc max watches":      {GRPCMaxWatches: -1},
		"grpc idle timeout":     {GRPCIdleTimeout: -1},
		"admin max connections": {AdminMaxConnections: -1},
		"request memory":        {RequestMemory: 3},
	} {
		wantInvalid(t, field, Options{Limits: l}, field, "")
	}
	for _, wrong := range []int{-1, 1 << 20} {
		bounds := Limits{}
		bounds.Descriptors = wrong
		wantInvalid(t, fmt.Sprint(wrong), Options{Limits: bounds}, "max descriptors", "")
	}
	wantInvalid(t, "a word", Options{Oversized: "allow"}, "oversized", "")
}

// hungUp reports whether the server ends a connection.
func hungUp(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err := io.Copy(io.Discard, conn)
	var late net.Error
	return !errors.As(err, &late) || !late.Timeout()
}

// TestGRPCConnectionsAreBounded: one too many is hung up on, counted and logged.
func TestGRPCConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	log := new(lines)
	app := start(t, Options{Limits: Limits{GRPCMaxConnections: 2}, Logger: slog.New(slog.NewJSONHandler(log, nil))})
	for range 2 {
		if _, err := login(t, dialGRPC(t, app)); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		conn := connect(t, addrOf(app, "grpc"))
		if !hungUp(conn) {
			t.Error("one too many was kept")
		}
	}
	wantMetrics(t, app, `weir_rejected_total{listener="grpc",reason="connections"} 3`)
	if n := strings.Count(log.String(), `"reason":"connections"`); n < 1 || n > 2 {
		t.Errorf("logged %d times: %s", n, log)
	}
}

// TestGRPCIdleConnectionsEnd: one without a call is closed, one that watches is not.
func TestGRPCIdleConnectionsEnd(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Limits: Limits{GRPCIdleTimeout: 100 * time.Millisecond}})
	watch := watchHealth(t, dialGRPC(t, app))
	f := newFramer(t, app)
	if !hungUp(f.conn) {
		t.Error("an idle connection was kept")
	}
	if watch.Context().Err() != nil {
		t.Error("a connection that watches was ended")
	}
}

// A framer speaks HTTP/2 by hand.
type framer struct {
	*http2.Framer
	conn    net.Conn
	header  bytes.Buffer
	encoder *hpack.Encoder
}

func newFramer(t *testing.T, app *App) *framer {
	t.Helper()
	conn := connect(t, addrOf(app, "grpc"))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := &framer{Framer: http2.NewFramer(conn, conn), conn: conn}
	f.encoder = hpack.NewEncoder(&f.header)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return f
}

// block encodes the headers of a call, with further fields, until the next one.
func (f *framer) block(path string, more map[string]string) []byte {
	f.header.Reset()
	field := func(name, value string) { _ = f.encoder.WriteField(hpack.HeaderField{Name: name, Value: value}) }
	field(":method", "POST")
	field(":scheme", "http")
	field(":path", path)
	field("content-type", "application/grpc")
	for name, value := range more {
		field(name, value)
	}
	return f.header.Bytes()
}

// begin begins a call that is compressed, and does not end it.
func (f *framer) begin(t *testing.T, stream uint32, path string) {
	t.Helper()
	block := f.block(path, map[string]string{"grpc-encoding": "gzip"})
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
}

// frame returns the next frame of a kind.
func frame[F http2.Frame](t *testing.T, f *framer) F {
	t.Helper()
	_ = f.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		next, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if wanted, ok := next.(F); ok {
			return wanted
		}
	}
}

// TestWatchesAreBoundedInAll: one too many is told so and counted. Checks need none of them.
func TestWatchesAreBoundedInAll(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Limits: Limits{GRPCMaxWatches: 2}})
	client := healthv1.NewHealthClient(dialGRPC(t, app))
	for _, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		watch, err := client.Watch(t.Context(), &healthv1.HealthCheckRequest{})
		if err == nil {
			_, err = watch.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	wantMetrics(t, app, `weir_rejected_total{listener="grpc",reason="watches"} 1`)
	answer, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || answer.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", answer, err)
	}
}

// TestUnfinishedCallsShutNobodyOut: many connections begin compressed calls without a token and do
// not end them. Calls with a token are answered meanwhile, compressed ones, too, and so are watches.
func TestUnfinishedCallsShutNobodyOut(t *testing.T) {
	t.Parallel()
	app := start(t, Options{GRPCTokenFile: passwordFile(t, oldToken)})
	for range 70 {
		f := newFramer(t, app)
		for i, path := range slices.Repeat([]string{rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, healthv1.Health_Watch_FullMethodName}, 16) {
			f.begin(t, uint32(2*i+1), path)
		}
		if err := f.WritePing(false, [8]byte{}); err != nil {
			t.Fatal(err)
		}
		for !frame[*http2.PingFrame](t, f).IsAck() {
		}
	}
	conn := dialGRPC(t, app)
	ctx := bearer(t, oldToken)
	for range 85 {
		request := &rlsv3.RateLimitRequest{Domain: "demo", Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptor("path", "/")}}
		if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request, grpc.UseCompressor(gzip.Name)); err != nil {
			t.Fatal(err)
		}
	}
	watchHealth(t, conn)
}

// TestGRPCStreamsAreBounded: one too many on a connection is refused.
func TestGRPCStreamsAreBounded(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Limits: Limits{GRPCMaxStreams: 7}})
	f := newFramer(t, app)
	if most, _ := frame[*http2.SettingsFrame](t, f).Value(http2.SettingMaxConcurrentStreams); most != 7 {
		t.Errorf("%d streams", most)
	}
	for i := range uint32(8) {
		f.begin(t, 2*i+1, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName)
	}
	if reset := frame[*http2.RSTStreamFrame](t, f); reset.StreamID != 15 || reset.ErrCode != http2.ErrCodeRefusedStream {
		t.Errorf("reset %v", reset)
	}
}

// TestAdminConnectionsAreBounded: one too many is told so.
func TestAdminConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Admin: AdminOptions{Address: "127.0.0.1:0"}, Limits: Limits{AdminMaxConnections: 1}})
	address := addrOf(app, "admin")
	conn := connect(t, address)
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
		t.Fatal(err)
	}
	if text := untilClosed(t, address); !strings.HasPrefix(text, "HTTP/1.1 503 ") {
		t.Errorf("one too many was told %q", text)
	}
	wantMetrics(t, app, `weir_rejected_total{listener="admin",reason="connections"} 1`, `weir_connections{frontend="admin"} 1`)
}

// TestRequestMemoryIsBounded: where others hold what there is, a large request is told
// to come again, and a small one is answered.
func TestRequestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Limits: Limits{RequestMemory: 4}})
	var others []*admission.Hold
	for range 100 {
		s := app.budget.Hold(nil)
		for s.Take(4 << 10) {
		}
		others = append(others, s)
	}
	descriptor := `{"entries":[{"key":"free","value":"` + strings.Repeat("x", 1000) + `"}]}`
	small, large := descriptor, descriptor+strings.Repeat(","+descriptor, 100)
	ask := func(path, descriptors string) int {
		t.Helper()
		resp, _ := send(t, app, "http", "POST", path, `{"domain":"demo","descriptors":[`+descriptors+`]}`)
		if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "1" {
			t.Error("nobody says when to come again")
		}
		return resp.StatusCode
	}
	for _, path := range []string{"/json", "/v1/take"} {
		if got := ask(path, large); got != http.StatusServiceUnavailable {
			t.Errorf("%s, large: %d", path, got)
		}
		if got := ask(path, small); got != http.StatusOK {
			t.Errorf("%s, small: %d", path, got)
		}
	}
	conn := dialGRPC(t, app)
	if _, err := rateLimit(t.Context(), conn, strings.Repeat("x", 200<<10)); status.Code(err) != codes.ResourceExhausted && status.Code(err) != codes.Unavailable {
		t.Errorf("gRPC, large: %v", err)
	}
	if _, err := login(t, dialGRPC(t, app)); err != nil {
		t.Errorf("gRPC, small: %v", err)
	}
	for _, s := range others {
		s.Close()
	}
	if got := ask("/json", large); got != http.StatusOK {
		t.Errorf("large, when there is room again: %d", got)
	}
	if text := metricsOf(t, app); !strings.Contains(text, `weir_rejected_total{listener="http",reason="memory"} 2`) || !strings.Contains(text, "weir_request_memory_bytes ") {
		t.Error("it was not counted")
	}
}

// TestIdleConnectionsMakeRoom: where a listener is full of connections that never made a
// call, newcomers are served, and connections that made calls stay.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	const most = 3
	var log lines
	app := start(t, Options{
		HTTPMaxConnections: most, RESP: "127.0.0.1:0", RESPMaxConnections: most, Admin: AdminOptions{Address: "127.0.0.1:0"},
		Limits: Limits{GRPCMaxConnections: most, AdminMaxConnections: most}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	old := greet(t, addrOf(app, "http"))
	defer old.Close()
	for _, listener := range []string{"http", "grpc", "resp", "admin"} {
		for range most {
			connect(t, addrOf(app, listener))
		}
	}
	wantRPC(t, app, "", codes.OK)
	if got := say(t, app, "PING\r\n"); got != "+PONG\r\n+OK\r\n" {
		t.Errorf("resp: %q", got)
	}
	for _, listener := range []string{"http", "admin"} {
		if resp, _ := send(t, app, listener, "GET", "/healthz", ""); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", listener, resp.Status)
		}
	}
	if ask(old) != http.StatusOK {
		t.Error("a connection that had made a call is gone")
	}
	for _, listener := range []string{"http", "admin"} {
		if text := metricsOf(t, app); !strings.Contains(text, fmt.Sprintf("weir_rejected_total{listener=%q,reason=\"connections\"} ", listener)) {
			t.Errorf("%s: not counted", listener)
		}
	}
	if !strings.Contains(log.String(), "reason=connections") {
		t.Errorf("not logged: %s", log.String())
	}
}
