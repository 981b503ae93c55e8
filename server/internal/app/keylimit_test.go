package app

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

const fewKeys = `
domain: shop
descriptors:
  - {key: path, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 3, max_keys: 5}}
  - {key: legacy, rate_limit: {unit: day, requests_per_unit: 3}}
`

// TestKeysAreBounded makes keys up: the store keeps as many as it may and one, the
// instance says so, and who was there before is served, also after a reload.
func TestKeysAreBounded(t *testing.T) {
	t.Parallel()
	redis := testserver.StartRedis(t)
	config := rulesFor(t, fewKeys)
	var log lines
	reloaded := make(chan error, 1)
	app := start(t, Options{
		Store: redis.URL(), Config: config, MaxKeys: 4, Reloaded: func(err error) { reloaded <- err },
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	ask := func(entry string, want int) {
		t.Helper()
		if status, body := get(t, app, "/v1/auth?domain=shop&"+entry); status != want {
			t.Errorf("%s: %d %s, want %d", entry, status, body, want)
		}
	}
	ask("path=/honest", http.StatusNoContent)
	for _, key := range []string{"path", "legacy"} {
		for i := range 30 {
			status, body := get(t, app, fmt.Sprintf("/v1/auth?domain=shop&%s=%d", key, i))
			if status != http.StatusNoContent && status != http.StatusTooManyRequests {
				t.Fatalf("%d %s", status, body)
			}
		}
	}
	if held, err := redis.Do("DBSIZE"); err != nil || held != "12" {
		t.Errorf("Redis holds %s keys, %v: want 5 and 1, 4 and 1, and that of the instances", held, err)
	}
	ask("path=/honest", http.StatusNoContent)
	ask("path=new", http.StatusTooManyRequests)
	_, ready := details(t, app)
	_, metrics := get(t, app, "/metrics")
	for text, where := range map[string]string{
		`shop/path;path#1 has 5 keys of 5; shop/legacy;day has 4 keys of 4`: ready,
		`weir_keys{limit="shop/path;path#1"} 5`:                             metrics,
		`weir_max_keys{limit="shop/legacy;day"} 4`:                          metrics,
		`weir_keys_overflowed_total{limit="shop/legacy;day"} 26`:            metrics,
	} {
		parts := strings.Split(text, "; ")
		for _, part := range parts {
			if !strings.Contains(where, part) {
				t.Errorf("%q is not in\n%s", part, where)
			}
		}
	}
	if said := strings.Count(log.String(), "reached its number of keys"); said != 2 {
		t.Errorf("said %d times, want once for each limit:\n%s", said, log.String())
	}
	replace(t, config, strings.Replace(fewKeys, "requests_per_unit: 3, max", "requests_per_unit: 4, max", 1))
	app.Reload()
	if err := <-reloaded; err != nil {
		t.Fatal(err)
	}
	ask("path=/honest", http.StatusNoContent)
	ask("path=/honest", http.StatusNoContent)
	ask("path=/honest", http.StatusTooManyRequests)
}

func TestMaxKeysIsChecked(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, 10_000_001} {
		wantInvalid(t, fmt.Sprint(n), Options{MaxKeys: n}, "max keys", "")
	}
}
