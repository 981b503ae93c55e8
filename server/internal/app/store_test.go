package app

import (
	"cmp"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

func TestStoreAwayAtStart(t *testing.T) {
	t.Parallel()
	var log lines
	app := start(t, Options{
		Store:  "unix://u:hunter2@" + filepath.Join(t.TempDir(), "redis.sock"),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if status, body := details(t, app); status != 503 || !strings.Contains(body, `"name":"store","ok":false`) {
		t.Errorf("readyz: %d %s", status, body)
	}
	if status, body := get(t, app, "/healthz"); status != 200 {
		t.Errorf("healthz: %d %s", status, body)
	}
	if status, body := get(t, app, "/v1/auth?domain=demo&user=alice"); status != http.StatusNoContent {
		t.Errorf("auth: %d %s", status, body)
	}
	if text := log.String(); !strings.Contains(text, "does not answer") || strings.Contains(text, "hunter2") {
		t.Errorf("log:\n%s", text)
	}
}

func TestRedisComesLater(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	server.Kill()
	app := start(t, Options{Store: server.URL()})
	if status, body := details(t, app); status != http.StatusServiceUnavailable {
		t.Errorf("while it is away: %d %s", status, body)
	}
	if status, body := get(t, app, "/v1/auth?domain=demo&user=alice"); status != http.StatusNoContent {
		t.Errorf("while it is away: %d %s", status, body)
	}
	server.Restart()
	if status, body := details(t, app); status != http.StatusOK {
		t.Errorf("when it is there: %d %s", status, body)
	}
	if status, body := get(t, app, "/v1/auth?domain=demo&user=alice"); status != http.StatusNoContent {
		t.Errorf("when it is there: %d %s", status, body)
	}
	server.Kill()
	if status, body := details(t, app); status != http.StatusOK {
		t.Errorf("when it is away again: %d %s", status, body)
	}
}

// TestStorePrefixAndSecret looks at the keys that a call leaves.
func TestStorePrefixAndSecret(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	secret := passwordFile(t, "hunter2\n")
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	slots := map[string]bool{}
	for _, o := range []Options{{}, {StorePrefix: "p_"}, {StorePrefix: "p_", StoreSecretFile: secret}, {StorePrefix: "p_", StoreSecretFile: secret}} {
		o.Store = server.URL()
		wantCodes(t, dialGRPC(t, start(t, o)), ok)
		keys, err := client.Keys(t.Context(), "*").Result()
		keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasSuffix(key, "override:{override}:instances") })
		if err != nil || len(keys) != 1 {
			t.Fatalf("keys %q, %v", keys, err)
		}
		prefix, rest, _ := strings.Cut(keys[0], "{")
		if prefix != cmp.Or(o.StorePrefix, "weir:") {
			t.Errorf("prefix %q: key %q", o.StorePrefix, keys[0])
		}
		slots[rest] = true
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if len(slots) != 3 {
		t.Errorf("a secret has to change the slots, for all instances alike: %v", slots)
	}
	wantInvalid(t, "an empty secret", Options{Store: server.URL(), StoreSecretFile: passwordFile(t, "")}, "store secret file", "")
}
