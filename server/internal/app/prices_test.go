package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const dollarRules = `domain: llm
prices: prices.yaml
descriptors:
  - {key: key, rate_limit: {count: usd, dollars: 900, unit: day, algorithm: fixed_window}}
`

// TestPriceFileChanges wants new prices in force for the next request, an open request charged by
// the row that it was held by, and the good prices kept while the file is wrong.
func TestPriceFileChanges(t *testing.T) {
	t.Parallel()
	open, goOn := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("X-Request-Id") == "slow" {
			open <- struct{}{}
			<-goOn
		}
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":0,"completion_tokens":10}}`)
	}))
	t.Cleanup(upstream.Close)
	dir := t.TempDir()
	prices := func(text string) {
		t.Helper()
		// A file that is written over may be read half written.
		next := filepath.Join(dir, "next")
		if err := errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, filepath.Join(dir, "prices.yaml"))); err != nil {
			t.Fatal(err)
		}
	}
	asOf := time.Now().Add(-100 * 24 * time.Hour).UTC().Format(time.DateOnly)
	row := func(dollars int) string {
		return fmt.Sprintf("as_of: %s\nmodels: [{model: m, input: 0, output: %d}]\n", asOf, dollars)
	}
	prices(row(12500))
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(dollarRules), 0o600); err != nil {
		t.Fatal(err)
	}
	var log lines
	app := start(t, Options{
		Config: dir, Models: ModelOptions{Address: "127.0.0.1:0", Upstream: upstream.URL}, Admin: AdminOptions{Address: "127.0.0.1:0"},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	spent := func() string {
		_, text := send(t, app, "admin", "GET", "/metrics", "")
		for line := range strings.Lines(text) {
			if rest, found := strings.CutPrefix(line, `weir_models_dollars_total{model="m"} `); found {
				return strings.TrimSpace(rest)
			}
		}
		return ""
	}
	ask := func(headers ...string) {
		t.Helper()
		if status, text := askModel(t, app, "/v1/chat/completions", append(headers, "Authorization: Bearer one")...); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ask("X-Request-Id: slow")
	}()
	<-open
	log.await(t, "the prices are old")
	prices(row(25000))
	log.await(t, "the rules files changed and are in force")
	ask()
	if got := spent(); got != "0.25" {
		t.Errorf("%s dollars by the new price, want 0.25", got)
	}
	close(goOn)
	<-ended
	if got := spent(); got != "0.375" {
		t.Errorf("%s dollars with the request that was open, want 0.375", got)
	}
	prices("as_of: 2026-11-01\nmodels: [{model: m, input: 0}]\n")
	log.await(t, "prices.yaml:2:10: output is missing")
	ask()
	if got := spent(); got != "0.625" {
		t.Errorf("%s dollars while the file is wrong, want 0.625", got)
	}
	_, text := send(t, app, "admin", "GET", "/metrics", "")
	var seconds float64
	for line := range strings.Lines(text) {
		_, _ = fmt.Sscanf(line, "weir_prices_age_seconds %g", &seconds)
	}
	if seconds < 100*86400 || seconds > 102*86400 {
		t.Errorf("the prices are %v seconds old, want 100 days", seconds)
	}
}

// TestOldPrices wants a warning each day while the prices are old, and none before.
func TestOldPrices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := make(chan string, 10)
		var asOf atomic.Pointer[time.Time]
		begun := time.Now()
		asOf.Store(&begun)
		prices := pricesAge{asOf: func() time.Time { return *asOf.Load() }, logger: slog.New(slog.NewTextHandler(toChannel(lines), nil))}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			prices.watch(ctx)
		}()
		time.Sleep(90*24*time.Hour + time.Minute)
		synctest.Wait()
		if len(lines) > 0 {
			t.Errorf("after 90 days: %s", <-lines)
		}
		time.Sleep(3 * 24 * time.Hour)
		synctest.Wait()
		if n := len(lines); n != 3 {
			t.Fatalf("%d warnings after 93 days, want 3", n)
		}
		if first := <-lines; !strings.Contains(first, "level=WARN") || !strings.Contains(first, "days=91") {
			t.Error(first)
		}
		asOf.Store(new(time.Time)) // The rules have their prices themselves now.
		time.Sleep(3 * 24 * time.Hour)
		synctest.Wait()
		if len(lines) != 2 || prices.age() != 0 {
			t.Errorf("without a price file: %v, %d further lines", prices.age(), len(lines)-2)
		}
		cancel()
		<-ended
	})
}

// toChannel sends each line of a log.
type toChannel chan<- string

func (c toChannel) Write(line []byte) (int, error) {
	c <- string(line)
	return len(line), nil
}
