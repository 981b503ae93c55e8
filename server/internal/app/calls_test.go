package app

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir"
)

// addrOf returns where an app serves a protocol; nowhere if it does not.
func addrOf(app *App, protocol string) string {
	for _, addr := range app.Addrs() {
		if addr.Protocol == protocol {
			return addr.Address
		}
	}
	return ""
}

// send calls a listener of an app on a connection of its own. A body is JSON; a header is
// "name: value", and left out without a value. Without an answer the test fails, and the answer has no status.
func send(t *testing.T, app *App, listener, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	return sendTo(t, nil, method, "http://"+addrOf(app, listener)+path, body, headers...)
}

// sendTo is send to a URL, which a configuration of TLS is for.
func sendTo(t *testing.T, secured *tls.Config, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return new(http.Response), ""
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	r.Host = r.Header.Get("Host")
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: secured, DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return new(http.Response), ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp, string(text)
}

// get and posted call the HTTP interface, and post calls administrators'.
func get(t *testing.T, app *App, path string, headers ...string) (int, string) {
	t.Helper()
	resp, text := send(t, app, "http", http.MethodGet, path, "", headers...)
	return resp.StatusCode, text
}

func posted(t *testing.T, app *App, path, body string) (int, string) {
	t.Helper()
	resp, text := send(t, app, "http", http.MethodPost, path, body)
	return resp.StatusCode, text
}

func post(t *testing.T, app *App, path, body string) (int, string) {
	t.Helper()
	resp, text := send(t, app, "admin", http.MethodPost, path, body)
	return resp.StatusCode, text
}

func metricsOf(t *testing.T, app *App) string {
	t.Helper()
	_, text := get(t, app, "/metrics")
	return text
}

// wantMetrics wants lines among the metrics of an app.
func wantMetrics(t *testing.T, app *App, lines ...string) {
	t.Helper()
	text := "\n" + metricsOf(t, app)
	for _, want := range lines {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no %s among the metrics", want)
		}
	}
}

// connect opens a connection, which ends with the test.
func connect(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

func dialGRPC(t *testing.T, app *App) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addrOf(app, "grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// bearer returns the context of gRPC calls with a token.
func bearer(t *testing.T, token string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
}

// rateLimit asks Envoy's question.
func rateLimit(ctx context.Context, conn *grpc.ClientConn, domain string, descriptors ...*ratelimitv3.RateLimitDescriptor) (*rlsv3.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: domain, Descriptors: descriptors})
}

func descriptor(key, value string) *ratelimitv3.RateLimitDescriptor {
	return &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}

// wantInvalid wants options refused by an error about a field, with a text.
func wantInvalid(t *testing.T, name string, o Options, field, text string) {
	t.Helper()
	_, err := New(o)
	invalid := new(weir.InvalidError)
	if !errors.As(err, &invalid) || invalid.Field != field || invalid.Want == "" || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want an error about %s with %q", name, err, field, text)
	}
}

// wantGood wants options that a server takes.
func wantGood(t *testing.T, name string, o Options) {
	t.Helper()
	if _, err := New(o); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// eventually repeats what does not hold yet.
func eventually(t *testing.T, holds func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = holds(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
