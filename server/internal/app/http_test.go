package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/panics"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/testing/openapitest"
)

const (
	oldToken = "an-old-token-0123456789"
	newToken = "the-next-token-0123456789"
)

// described is a client of an app whose calls are held against the document.
type described struct {
	t        *testing.T
	url      string
	document *openapitest.Document
	header   http.Header
}

func newDescribed(t *testing.T, app *App) *described {
	t.Helper()
	d, err := openapitest.Parse(httpapi.Description())
	if err != nil {
		t.Fatal(err)
	}
	return &described{t: t, url: "http://" + app.Addrs()[0].Address, document: d, header: http.Header{}}
}

// of turns to another app.
func (d *described) of(app *App) { d.url = "http://" + app.Addrs()[0].Address }

func (d *described) call(method, target, body string) (*http.Response, string) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.url+target, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header = d.header.Clone()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, wrong := range d.document.Check(r, []byte(body), got, text) {
		d.t.Errorf("%s %s: %d: %s", method, target, got.StatusCode, wrong)
	}
	return got, string(text)
}

// TestTokens: every path but those of whoever watches the process asks for one of
// the file's tokens, and for the next ones once the file has changed.
func TestTokens(t *testing.T) {
	t.Parallel()
	file := passwordFile(t, oldToken+"\n\n"+newToken+"\r\n")
	var log lines
	app := start(t, Options{HTTPTokenFile: file, GRPCTokenFile: file, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	d := newDescribed(t, app)
	for target, public := range map[string]bool{
		"/v1/auth?domain=demo&user=a": false, "/v1/auth": false, "/v1": false, "/": false, "/nothing": false, "/healthz/": false, "/metrics": false,
		"/healthz": true, "/readyz": true, "/healthcheck": true, "/openapi.json": true, "/openapi.yaml": true,
	} {
		d.header.Del("Authorization")
		if got, text := d.call("GET", target, ""); (got.StatusCode == http.StatusUnauthorized) == public {
			t.Errorf("%s: %d %s", target, got.StatusCode, text)
		}
	}
	const taking = `{"domain":"demo","descriptors":[{"entries":[{"key":"user","value":"b"}]}]}`
	for authorization, admitted := range map[string]bool{
		"Bearer " + oldToken: true, "bearer  " + newToken: true, "Bearer " + newToken + " ": true,
		basicOf("weir", oldToken): true, basicOf("", newToken): true,
		"": false, oldToken: false, "Bearer": false, "Bearer ": false, "Bearer " + oldToken[1:]: false, "Bearer " + oldToken + "x": false,
		"Bearer " + oldToken + "\t" + newToken: false, "Token " + oldToken: false, basicOf(oldToken, ""): false, "Basic " + oldToken: false,
	} {
		d.header.Set("Authorization", authorization)
		for _, path := range []string{"/v1/take", "/json"} {
			if got, text := d.call("POST", path, taking); (got.StatusCode != http.StatusUnauthorized) != admitted {
				t.Errorf("%s, %q: %d %s", path, authorization, got.StatusCode, text)
			}
		}
	}
	d.header["Authorization"] = []string{"Bearer " + oldToken, "Bearer x"}
	if got, _ := d.call("POST", "/v1/take", taking); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("two tokens: %d", got.StatusCode)
	}
	wantRPC(t, app, "", codes.Unauthenticated)
	wantRPC(t, app, "Bearer "+oldToken+"x", codes.Unauthenticated)
	wantRPC(t, app, "Bearer "+newToken, codes.OK)
	if said := log.String(); strings.Contains(said, oldToken) || strings.Contains(said, newToken) {
		t.Errorf("logged: %s", said)
	}
}

func TestWrongDoors(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"short":    {HTTPTokenFile: passwordFile(t, "fifteen-letters")},
		"empty":    {GRPCTokenFile: passwordFile(t, "\n \n")},
		"spaces":   {HTTPTokenFile: passwordFile(t, oldToken+"\n"+oldToken+" "+newToken)},
		"large":    {HTTPTokenFile: passwordFile(t, strings.Repeat(oldToken+"\n", (64<<10)/len(oldToken)))},
		"http max": {HTTPMaxConnections: -1},
		"resp max": {RESPMaxConnections: -1},
	} {
		if _, err := New(o); !errors.Is(err, weir.ErrInvalid) || strings.Contains(err.Error(), oldToken) || strings.Contains(err.Error(), "fifteen") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := New(Options{HTTPTokenFile: "/nowhere"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nowhere: %v", err)
	}
}

// TestHTTPConnectionsAreBounded: one too many is told so, and there is room again
// when another leaves.
func TestHTTPConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	app := start(t, Options{HTTPMaxConnections: 2, RESP: "127.0.0.1:0", RESPMaxConnections: 1})
	address := app.Addrs()[0].Address
	first, second := greet(t, address), greet(t, address)
	if text := untilClosed(t, address); !strings.HasPrefix(text, "HTTP/1.1 503 ") {
		t.Errorf("one too many was told %q", text)
	}
	first.Close()
	testserver.Eventually(t, "room again", func() bool {
		conn := connect(t, address)
		return ask(conn) == http.StatusOK
	})
	if ask(second) != http.StatusOK {
		t.Error("a client that was there lost its connection")
	}
	redis := connect(t, addrOf(app, "resp"))
	fmt.Fprint(redis, "PING\r\n")
	if line, err := bufio.NewReader(redis).ReadString('\n'); line != "+PONG\r\n" {
		t.Fatalf("%q %v", line, err)
	}
	if got := untilClosed(t, addrOf(app, "resp")); !strings.Contains(got, "max number of clients") {
		t.Errorf("one Redis client too many got %q", got)
	}
}

// untilClosed returns all that a listener sends to a client that sends nothing.
func untilClosed(t *testing.T, address string) string {
	t.Helper()
	conn := connect(t, address)
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	text, err := io.ReadAll(conn)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// greet opens a connection that has been answered once.
func greet(t *testing.T, address string) net.Conn {
	t.Helper()
	conn := connect(t, address)
	if status := ask(conn); status != http.StatusOK {
		t.Fatalf("got %d", status)
	}
	return conn
}

// ask asks for a sign of life on a connection that is there; 0 is none.
func ask(conn net.Conn) int {
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n"); err != nil {
		return 0
	}
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	defer got.Body.Close()
	_, _ = io.Copy(io.Discard, got.Body)
	return got.StatusCode
}

// TestAnswersOfAllListeners gets every answer of the document that the tests of httpapi
// do not see: those of the rate limit service, and 401.
func TestAnswersOfAllListeners(t *testing.T) {
	t.Parallel()
	d := newDescribed(t, start(t, Options{}))
	const body = `{"domain":"demo","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`
	for range 6 {
		d.call("POST", "/json", body)
	}
	d.call("POST", "/json", `{"domain":`)
	d.call("POST", "/json", `{"domain":"demo","descriptors":[]}`)
	d.call("GET", "/healthcheck", "")
	d.call("GET", "/metrics", "")
	d.call("HEAD", "/metrics", "")

	d.of(start(t, Options{Store: "redis://127.0.0.1:1", Timeout: 4 * time.Second, Config: rulesFor(t, failureRules)}))
	d.call("POST", "/json", `{"domain":"shop","descriptors":[{"entries":[{"key":"theirs","value":"a"}]}]}`)
	d.call("GET", "/healthcheck", "")

	d.of(start(t, Options{Oversized: "error"}))
	d.call("POST", "/json", body+strings.Repeat(" ", 256<<10))

	d.of(start(t, Options{HTTPTokenFile: passwordFile(t, oldToken)}))
	for _, operation := range d.document.Operations() {
		method, path, _ := strings.Cut(operation, " ")
		d.call(method, path, "")
	}

	d.of(start(t, Options{Config: rulesFor(t, scopedRules), Callers: callersFile(t, "admin-read", "none")}))
	d.header.Set("Authorization", "Bearer "+tokenOf("edge"))
	d.header.Set("Content-Type", "application/json")
	for _, operation := range d.document.Operations() {
		method, path, _ := strings.Cut(operation, " ")
		switch path {
		case "/v1/auth":
			d.call(method, path+"?domain=shop&user=a&deny=403", "")
		case "/v1/take", "/json":
			d.call(method, path, fmt.Sprintf(wire, ""))
		case "/v1/refund", "/v1/settle":
			d.call(method, path, fmt.Sprintf(wire, `,"id":"x","cost":1`))
		case "/v1/renew":
			d.call(method, path, fmt.Sprintf(wire, `,"id":"x","hold_ms":1000`))
		case "/v1/record":
			d.call(method, path, `{"domain":"shop","limits":[{"key":"k","limit":"1/s"}],"cost":1}`)
		case "/v1/reset":
			d.call(method, path, `{"domain":"shop","limits":[{"key":"k","limit":"1/s"}]}`)
		case "/v1/release":
			d.call(method, path, fmt.Sprintf(wire, `,"id":"x"`))
		default:
			d.call(method, path, "")
		}
	}

	service := rls.New(rls.Options{Rules: rules.Demo, Taker: panicking{}})
	broken := httptest.NewServer((&panics.Reporter{Listener: "http"}).HTTP(service.JSON(nil)))
	defer broken.Close()
	d.url = broken.URL
	d.call("POST", "/json", body)

	for _, answer := range d.document.Unseen() {
		if strings.Contains(answer, " /json ") || strings.Contains(answer, " /healthcheck ") || strings.Contains(answer, " /metrics ") || strings.HasSuffix(answer, " 401") || strings.HasSuffix(answer, " 403") {
			t.Errorf("no %s", answer)
		}
	}
}

// panicking is a store that has lost its head.
type panicking struct{}

func (panicking) Take(context.Context, []*weir.Act) { panic("lost") }

func basicOf(user, password string) string {
	r, _ := http.NewRequest(http.MethodGet, "/", nil)
	r.SetBasicAuth(user, password)
	return r.Header.Get("Authorization")
}

// wantRPC asks Envoy's question with a token, and the health check without one.
func wantRPC(t *testing.T, app *App, authorization string, want codes.Code) {
	t.Helper()
	conn := dialGRPC(t, app)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", authorization)
	_, err := rateLimit(ctx, conn, "demo", descriptor("user", "r"))
	if status.Code(err) != want {
		t.Errorf("%q: got %v, want %v", authorization, err, want)
	}
	if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
}

// TestHeldUpClient: a client that is held up for seconds between its connection and its request is
// answered, and does not find the connection closed.
func TestHeldUpClient(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	conn, err := net.Dial("tcp", start(t, Options{}).Addrs()[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	time.Sleep(3 * time.Second)
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK\r\n") {
		t.Errorf("%q, %v: want 200", answer, err)
	}
}
