package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/httpapi"
)

// A pool of go-redis whose server is away looks once a second whether it was closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// start returns a running server on a free port, which ends with the test.
func start(t *testing.T, o Options) *App {
	t.Helper()
	// A busy machine is no outage of the store, and answers late.
	o.Timeout = cmp.Or(o.Timeout, writeTimeout-time.Second)
	o.Fallback.StoreSilence = cmp.Or(o.Fallback.StoreSilence, 10*time.Second)
	o.Fallback.StoreTimeout = cmp.Or(o.Fallback.StoreTimeout, 10*time.Second)
	app := unstopped(t, o)
	t.Cleanup(func() { stop(t, app) })
	return app
}

// stop stops a server, and wants every call answered.
func stop(t *testing.T, app *App) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := app.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// wantCutOff stops a server in which a call does not end.
func wantCutOff(t *testing.T, app *App) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if err := app.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want an error because a call was cut off", err)
	}
	if took := time.Since(begun); took > readTimeout/2 {
		t.Errorf("took %s", took)
	}
}

// unstopped is start for a server that the test stops.
func unstopped(t *testing.T, o Options) *App {
	t.Helper()
	o.HTTP, o.GRPC = "127.0.0.1:0", cmp.Or(o.GRPC, "127.0.0.1:0")
	app, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(errors.Join(err, app.Stop(context.Background())))
	}
	return app
}

// details asks whether the server is ready as administrators do.
func details(t *testing.T, app *App) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	httpapi.Readiness(httpapi.Options{Ready: app.health.checks, Timeout: 10 * time.Second}).ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
	return w.Code, w.Body.String()
}

// TestEveryAddress: an address that means each of the machine is shown as it was given.
func TestEveryAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"0.0.0.0:0": "0.0.0.0:", ":0": "[::]:"} {
		l := &listener{name: "http", address: address, wrap: func(l net.Listener) net.Listener { return l }}
		s, err := l.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := s.addr().Address; !strings.HasPrefix(got, want) {
			t.Errorf("%s is shown as %s", address, got)
		}
		s.Close()
	}
}

func TestServes(t *testing.T) {
	t.Parallel()
	var announced []Addr
	app := start(t, Options{Serving: func(addrs []Addr) { announced = addrs }})
	if len(announced) != 2 || announced[0] != app.Addrs()[0] || strings.HasSuffix(announced[0].Address, ":0") {
		t.Errorf("announced %v, addresses are %v", announced, app.Addrs())
	}
	if got := announced[0].String(); !strings.HasPrefix(got, "http 127.0.0.1:") {
		t.Errorf("printed as %q", got)
	}
	for i := range 6 {
		want := http.StatusNoContent
		if i == 5 {
			want = http.StatusTooManyRequests
		}
		if status, body := get(t, app, "/v1/auth?domain=demo&user=alice"); status != want {
			t.Errorf("call %d: %d %s, want %d", i, status, body, want)
		}
	}
	if status, body := get(t, app, "/readyz"); status != http.StatusOK {
		t.Errorf("readyz: %d %s", status, body)
	}
}

// TestListenersAreOff unless asked for, but those of HTTP and gRPC, of which gRPC can be.
func TestListenersAreOff(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"http grpc": {RESP: "", Admin: AdminOptions{}},
		"http":      {GRPC: Off, RESP: Off, Admin: AdminOptions{Address: Off}},
	} {
		var got []string
		for _, a := range start(t, o).Addrs() {
			got = append(got, a.Protocol)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("listeners are %v, want %s", got, want)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newHTTPServer(slog.New(slog.DiscardHandler), 0)
	for name, got := range map[string]time.Duration{
		"read header": s.ReadHeaderTimeout, "read": s.ReadTimeout, "write": s.WriteTimeout, "idle": s.IdleTimeout,
	} {
		if got <= 0 || got > time.Minute {
			t.Errorf("%s timeout: %s", name, got)
		}
	}
	running := start(t, Options{})
	resp, _ := send(t, running, "http", "GET", "/healthz", "", "X-Large: "+strings.Repeat("x", 2*maxProxyHeaderBytes))
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("large header: %s", resp.Status)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		field   string
		options Options
	}{
		{"http", Options{HTTP: "8080"}},
		{"http", Options{HTTP: "127.0.0.1:http"}},
		{"grpc", Options{GRPC: "8081"}},
		{"grpc", Options{GRPC: "unix:"}},
		{"resp", Options{RESP: "unix:"}},
		{"grpc max header bytes", Options{Limits: Limits{GRPCMaxHeaderBytes: 1000}}},
		{"grpc max message bytes", Options{Limits: Limits{GRPCMaxMessageBytes: 1 << 20}}},
		{"grpc connection age", Options{GRPCConnectionAge: -1}},
		{"grpc connection grace", Options{GRPCConnectionGrace: -1}},
		{"timeout", Options{Timeout: -1}},
		{"timeout", Options{Timeout: writeTimeout}},
		{"drain delay", Options{DrainDelay: time.Minute}},
		{"drain timeout", Options{DrainTimeout: -1}},
		{"store", Options{Store: "nowhere"}},
	} {
		wantInvalid(t, fmt.Sprintf("%+v", test.options), test.options, test.field, "")
	}
	_, err := New(Options{Config: rulesFor(t, "domain: [\n")})
	if problems := config.Problems(nil); !errors.As(err, &problems) {
		t.Errorf("bad rules: got %v", err)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	app := start(t, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := app.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if conn, err := net.DialTimeout("tcp", app.Addrs()[0].Address, time.Second); err == nil {
		conn.Close()
		t.Error("still listens")
	}
	if err := app.Start(ctx); err == nil {
		t.Error("started again")
	}
}

func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	app, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := app.Start(t.Context()); err == nil || len(app.Addrs()) > 0 {
		t.Errorf("started after Stop: %v", err)
	}
}

func TestStartTwice(t *testing.T) {
	t.Parallel()
	app := start(t, Options{})
	if err := app.Start(t.Context()); err == nil {
		t.Error("started twice")
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	app, err := New(Options{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Serving: func([]Addr) { cancel() }})
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestRunReportsAnAddressInUse(t *testing.T) {
	t.Parallel()
	other := start(t, Options{RESP: "127.0.0.1:0"})
	for listener, o := range map[string]Options{
		"http": {HTTP: addrOf(other, "http"), GRPC: Off},
		"resp": {HTTP: "127.0.0.1:0", GRPC: Off, RESP: addrOf(other, "resp")},
	} {
		app, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := app.Run(t.Context()); err == nil || !strings.Contains(err.Error(), listener) || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s: %v", listener, err)
		}
	}
}

func TestRunReportsALostListener(t *testing.T) {
	t.Parallel()
	app, err := New(Options{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	lost := errors.New("lost")
	app.failed <- lost
	if err := app.Run(t.Context()); !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
}

// hang begins a call and leaves it unfinished, in a handler that waits for its
// body.
func hang(t *testing.T, app *App) net.Conn {
	t.Helper()
	conn := connect(t, app.Addrs()[0].Address)
	if _, err := io.WriteString(conn, "POST /v1/take HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	app := unstopped(t, Options{})
	hang(t, app)
	wantCutOff(t, app)
}

func TestNotReadyWhileDraining(t *testing.T) {
	t.Parallel()
	var log lines
	app := unstopped(t, Options{DrainDelay: 10 * time.Second, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	done := make(chan error, 1)
	stopCtx, cut := context.WithTimeout(context.Background(), 20*time.Second)
	defer cut()
	go func() { done <- app.Stop(stopCtx) }()
	log.await(t, "draining")
	status, body := get(t, app, "/readyz")
	var answer struct {
		Ready  bool
		Checks []struct {
			Name string
			OK   bool
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	if status != http.StatusServiceUnavailable || answer.Ready || answer.Checks[0].Name != "serving" || answer.Checks[0].OK {
		t.Errorf("readyz: %d %s", status, body)
	}
	cut()
	<-done
}

// lines is a log that a test can wait on.
type lines struct{ testserver.Output }

func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	eventually(t, func() error {
		if !strings.Contains(l.String(), text) {
			return fmt.Errorf("%q is not logged:\n%s", text, l)
		}
		return nil
	})
}

// TestStopsThoughTheStoreHungUp: nothing is wrong with a server whose store hung up
// before it did.
func TestStopsThoughTheStoreHungUp(t *testing.T) {
	t.Parallel()
	app := start(t, Options{})
	app.store.Close() // a second time, it fails
	if err := app.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
