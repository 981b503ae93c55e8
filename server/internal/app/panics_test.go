package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/frames"
)

// besides is a store that loses its head where asked for one key.
type besides struct{ weir.Taker }

func (b besides) Take(ctx context.Context, acts []*weir.Act) {
	for _, a := range acts {
		for _, c := range a.Charges {
			if strings.Contains(c.Key, "poison") {
				panic("lost: " + strings.Repeat("x", 1<<20))
			}
		}
	}
	b.Taker.Take(ctx, acts)
}

// poisoned is a server with such a store.
func poisoned(t *testing.T) (*App, *lines) {
	t.Helper()
	log := new(lines)
	return start(t, Options{
		RESP: "127.0.0.1:0", Admin: AdminOptions{Address: "127.0.0.1:0"}, Logger: slog.New(slog.NewJSONHandler(log, nil)),
		Config: rulesFor(t, largeRules), wrapStore: func(store weir.Taker) weir.Taker { return besides{store} },
	}), log
}

// wantPanic wants one panic counted and logged in a line of bounded length.
func wantPanic(t *testing.T, app *App, log *lines, listener string) {
	t.Helper()
	wantMetrics(t, app, fmt.Sprintf("weir_panics_total{listener=%q} 1", listener))
	line := ""
	for l := range strings.Lines(log.String()) {
		if strings.Contains(l, "a call panicked") {
			line += l
		}
	}
	if !strings.Contains(line, `"listener":"`+listener+`"`) || !strings.Contains(line, "panics_test.go") || len(line) > 8<<10 || strings.Count(line, "\n") != 1 {
		t.Errorf("logged in %d bytes: %.300s", len(line), line)
	}
}

// TestSurvivesPanics: a call that panics says no more than that, and the next one is answered.
func TestSurvivesPanics(t *testing.T) {
	t.Parallel()
	type outcome struct {
		good bool
		said string
	}
	answered := func(code int, text string) outcome {
		return outcome{code == http.StatusOK, fmt.Sprint(code, " ", text)}
	}
	for name, c := range map[string]struct {
		listener string
		ask      func(t *testing.T, app *App, value string) outcome
		want     string
	}{
		"take": {"http", func(t *testing.T, app *App, value string) outcome {
			return answered(posted(t, app, "/v1/take", takes("plain", value)))
		}, `"status":500`},
		"json": {"http", func(t *testing.T, app *App, value string) outcome {
			return answered(posted(t, app, "/json", takes("plain", value)))
		}, "500"},
		"gRPC": {"grpc", func(t *testing.T, app *App, value string) outcome {
			over, err := envoyAsks(t, app, large("plain", value))
			return outcome{err == nil && over == 0, fmt.Sprint(err)}
		}, "code = Internal"},
		"admin": {"admin", func(t *testing.T, app *App, value string) outcome {
			resp, text := send(t, app, "admin", "GET", "/v1/key?domain=large&entry=plain="+value, "")
			return answered(resp.StatusCode, text)
		}, "500"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app, log := poisoned(t)
			if got := c.ask(t, app, "poison"); got.good || !strings.Contains(got.said, c.want) || strings.Contains(got.said, "lost") {
				t.Errorf("got %+v, want %s", got, c.want)
			}
			wantPanic(t, app, log, c.listener)
			if got := c.ask(t, app, "good"); !got.good {
				t.Errorf("the next call: %+v", got)
			}
			if c.listener == "http" {
				newDescribed(t, app).call("POST", "/v1/take", takes("plain", "poison"))
			}
		})
	}
}

// TestGRPCStreamsSurvivePanics: the stream ends, and others go on.
func TestGRPCStreamsSurvivePanics(t *testing.T) {
	t.Parallel()
	app, log := poisoned(t)
	m := app.method("/grpc.health.v1.Health/Watch")
	if err := m.rescued(t.Context(), nil, func(context.Context, *frames.Call) error { panic("lost: " + strings.Repeat("x", 1<<20)) }); status.Code(err) != codes.Internal {
		t.Errorf("got %v", err)
	}
	wantPanic(t, app, log, "grpc")
}

// TestRESPSurvivesPanics: what was answered before arrives, then an error, then the
// connection ends; others go on.
func TestRESPSurvivesPanics(t *testing.T) {
	t.Parallel()
	app, log := poisoned(t)
	conn, other := connect(t, addrOf(app, "resp")), connect(t, addrOf(app, "resp"))
	fmt.Fprint(conn, "PING\r\nCL.THROTTLE good 1 1 1 0\r\nPING\r\nCL.THROTTLE poison 1 1 1\r\nCL.THROTTLE good 1 1 1 0\r\n")
	text, err := io.ReadAll(conn)
	if err != nil || string(text) != "+PONG\r\n*5\r\n:0\r\n:2\r\n:2\r\n:-1\r\n:0\r\n+PONG\r\n-ERR the call failed; the log says why\r\n" {
		t.Errorf("%q, %v", text, err)
	}
	wantPanic(t, app, log, "resp")
	fmt.Fprint(other, "PING\r\n")
	if line, err := bufio.NewReader(other).ReadString('\n'); line != "+PONG\r\n" {
		t.Errorf("another client: %q, %v", line, err)
	}
}

// TestBackgroundSurvivesPanics: what gives leased units back goes on.
func TestBackgroundSurvivesPanics(t *testing.T) {
	t.Parallel()
	app, log := poisoned(t)
	app.telemetry.panics("background").Background("lease", func() { panic("lost") })
	wantPanic(t, app, log, "background")
}

// TestPanicsCutAnswersOff: an answer that has begun is not completed by another.
func TestPanicsCutAnswersOff(t *testing.T) {
	t.Parallel()
	app, _ := poisoned(t)
	server := httptest.NewServer(app.telemetry.panics("http").HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		panic("lost")
	})))
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) || string(text) != "begun" {
		t.Errorf("%q, %v", text, err)
	}
}
