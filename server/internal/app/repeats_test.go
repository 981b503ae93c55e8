package app

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

func TestRepeats(t *testing.T) {
	t.Parallel()
	var log lines
	clock, away := storetest.NewClock(), false
	logger := withoutRepeats(slog.New(slog.NewTextHandler(&log, nil)), clock.Now)
	beside := duringOutages(logger.With("from", "beside"), func() bool { return away })
	for range 3 {
		logger.Warn("fails")
		beside.Warn("fails")
		logger.Warn("fails too")
		logger.Info("told")
	}
	clock.Advance(repeatsPause)
	logger.Warn("fails")
	away = true
	clock.Advance(repeatsPause)
	beside.Warn("fails")
	logger.Warn("fails too")
	var got []string
	for line := range strings.Lines(log.String()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), "level=")
		got = append(got, line)
	}
	want := `WARN msg=fails
WARN msg="fails too"
INFO msg=told
INFO msg=told
INFO msg=told
WARN msg=fails left_out=5
WARN msg="fails too" left_out=2`
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// TestAnOutageIsLoggedOnce asks for a rule that has no answer of its own while the
// store is away, at several listeners, for longer than a second. A line names each component once.
func TestAnOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log lines
	server := testserver.StartRedis(t)
	app := start(t, Options{
		Store: server.URL(), Config: rulesFor(t, failureRules), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Fallback: FallbackOptions{StoreTimeout: time.Second},
	})
	if code, body := get(t, app, "/v1/auth?domain=shop&theirs=a"); code != http.StatusNoContent {
		t.Fatalf("%d %s", code, body)
	}
	before := len(strings.Split(log.String(), "\n"))
	server.Kill()
	for begun := time.Now(); time.Since(begun) < 2500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		get(t, app, "/v1/auth?domain=shop&theirs=a")
		askRLS(t, app, "theirs")
	}
	// The store is away, no decision was reached, and perhaps overrides and messages that
	// failed before that was known.
	told := strings.Split(strings.TrimSpace(log.String()), "\n")[before-1:]
	times := map[string]int{}
	for _, line := range told {
		_, message, _ := strings.Cut(line, "msg=")
		message, _, _ = strings.Cut(message, " error=")
		times[message]++
		for _, component := range []string{"weir: ", "server: ", "redis: "} {
			if strings.Count(line, component) > 1 {
				t.Errorf("%q twice in %s", component, line)
			}
		}
	}
	if len(told) < 2 || len(times) < len(told) || len(told) > 5 {
		t.Errorf("an outage of 2.5 s is told in %d lines:\n%s", len(told), strings.Join(told, "\n"))
	}
}
