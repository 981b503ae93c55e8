package app

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testserver"
)

func TestOpenStoreRefuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"memory:x":                              "memory alone",
		"memcached://h":                         "of no known kind",
		"redis.internal:6379":                   "of no known kind",
		"redis+cluster://h:1,h:2/1":             "a database number",
		"redis+cluster://h:1,":                  `a host that is none: ""`,
		"redis+cluster://h:1,h:port":            `a host that is none: "h:port"`,
		"redis+cluster://u:hunter2@h:1?x=1":     "unexpected option: x",
		"redis+sentinel://h/mymaster":           "without a master's name",
		"redis+sentinel://u:hunter2@h:1,h:2":    "without a master's name",
		"redis+sentinel://m@h:1/x":              "invalid database number",
		"redis://h?sentinel_password=hunter2":   "without sentinels",
		"redis+ring://h:1,h:2":                  "of no known kind",
		"redis://u:hunter2@h:port":              "not a URL",
		"redis://u:hun%ter2@h":                  "not a URL",
		"redis://u:hunter2@h/zero":              "invalid database number",
		"redis://u:hunter2@h?read_timeout=soon": "read_timeout",
		"hunter2":                               "of no known kind",
	} {
		_, err := openStore(url, storeOptions{})
		invalid := new(weir.InvalidError)
		if !errors.As(err, &invalid) || invalid.Field != "store" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hun") {
			t.Errorf("%s: the error tells the password: %v", url, err)
		}
	}
}

func TestOpenStoreConnectsToNothing(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"memory", "memory://", "redis://h:1/2", "rediss://u:p@h", "unix:///run/redis.sock?db=1", "redis+cluster://u:p@h:1,h,[::1]:7", "rediss+sentinel://u:p@main@h,h:2/3?pool_size=2&sentinel_password=q"} {
		s, err := openStore(url, storeOptions{})
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if err := s.close(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestOnlyRedisIsCoalesced looks at what stands before each store.
func TestOnlyRedisIsCoalesced(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{"memory": false, "redis://h:1/2": true} {
		a, err := New(Options{Store: url})
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if got := a.stack.Coalesce() != nil; got != want {
			t.Errorf("%s: coalesced %v, want %v", url, got, want)
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestTune(t *testing.T) {
	t.Parallel()
	o, err := redis.ParseURL("redis://h?max_retries=5&read_timeout=2s&pool_size=3")
	if err != nil {
		t.Fatal(err)
	}
	tune(o)
	if o.MaxRetries != -1 || o.DialerRetries != 1 || !o.ContextTimeoutEnabled || !o.DisableIdentity {
		t.Errorf("a charge could be sent twice, or its deadline missed: %+v", o)
	}
	if o.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled {
		t.Errorf("maintenance notifications: %s", o.MaintNotificationsConfig.Mode)
	}
	if o.ReadTimeout != 2*time.Second || o.PoolSize != 3 || o.MaxActiveConns != 3 {
		t.Errorf("the URL's choices are lost: %s, %d, %d", o.ReadTimeout, o.PoolSize, o.MaxActiveConns)
	}
	if o.WriteTimeout != socketTimeout || o.DialTimeout != dialTimeout {
		t.Errorf("defaults: %s, %s", o.WriteTimeout, o.DialTimeout)
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"memory":                              "memory",
		"memory://":                           "memory",
		"redis://u:hunter2@h:1/2?password=no": "redis://h:1/2",
		"unix://u:hunter2@/run/redis.sock":    "unix:///run/redis.sock",
		"redis://u:hun%ter2@h":                "redis",
		"redis+cluster://u:hunter2@h,i:2?x":   "redis+cluster",
		"redis+cluster://u:hunter2@h,i:2":     "redis+cluster://h:6379,i:2",
		"redis+sentinel://u:hunter2@m@h/1":    "redis+sentinel://m@h:26379",
		"redis+sentinel://u:hunter2@h":        "redis+sentinel",
	} {
		if got := describe(url); got != want {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
}

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

func TestRedis(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	one, other := start(t, Options{Store: server.URL()}), start(t, Options{Store: "redis://" + server.Addr() + "/0"})
	for i, app := range []*App{one, other, one, other, one} {
		if status, body := get(t, app, "/v1/auth?domain=demo&user=alice"); status != http.StatusNoContent {
			t.Errorf("call %d: %d %s", i, status, body)
		}
	}
	for _, app := range []*App{one, other} {
		if status, body := get(t, app, "/v1/auth?domain=demo&user=alice"); status != http.StatusTooManyRequests {
			t.Errorf("beyond the limit: %d %s", status, body)
		}
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
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	slots := map[string]bool{}
	for _, o := range []Options{{}, {StorePrefix: "p_"}, {StorePrefix: "p_", StoreSecretFile: secret}, {StorePrefix: "p_", StoreSecretFile: secret}} {
		o.Store = server.URL()
		wantCodes(t, dialGRPC(t, start(t, o)), ok)
		keys, err := client.Keys(t.Context(), "*").Result()
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
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Store: server.URL(), StoreSecretFile: secret}); err == nil || !strings.Contains(err.Error(), "store secret file") {
		t.Errorf("an empty secret: %v", err)
	}
}
