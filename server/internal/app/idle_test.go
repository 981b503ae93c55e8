package app

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

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
