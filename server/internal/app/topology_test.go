package app

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/server/internal/store"

	"github.com/weirlimit/weir/internal/testserver"
)

// TestTopologies has two instances share limits in each topology of Redis.
func TestTopologies(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"one":      testserver.StartRedis(t).URL(),
		"cluster":  testserver.StartCluster(t, 3, "--cluster-require-full-coverage", "no").URL(),
		"sentinel": testserver.StartSentinel(t, 1).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serves(t, start(t, Options{Store: url}), start(t, Options{Store: url}))
		})
	}
}

// serves demands that instances are ready and share the limits of their store.
func serves(t *testing.T, apps ...*App) {
	t.Helper()
	for _, app := range apps {
		eventually(t, func() error {
			if status, body := details(t, app); status != http.StatusOK || !strings.Contains(body, `{"name":"store settings","ok":true}`) {
				return fmt.Errorf("readyz: %d %s", status, body)
			}
			return nil
		})
	}
	for i, want := range []int{204, 204, 204, 204, 204, 429} {
		if status, body := get(t, apps[i%len(apps)], "/v1/auth?domain=demo&user=alice"); status != want {
			t.Errorf("call %d: %d %s, want %d", i, status, body, want)
		}
	}
}

// TestStorePasswordFile changes a password while connections are open, and after.
func TestStorePasswordFile(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	file := filepath.Join(t.TempDir(), "password")
	change := func(password string) {
		if _, err := server.Do("ACL", "SETUSER", "weir", "on", "resetpass", ">"+password, "~*", "&*", "+@all"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change("first")
	url := strings.Replace(server.URL(), "://", "://weir@", 1)
	app := start(t, Options{Store: url, StorePasswords: store.Passwords{File: file}})
	if status, body := get(t, app, "/v1/auth?domain=demo&user=alice"); status != 204 {
		t.Errorf("the first password: %d %s", status, body)
	}
	change("second")
	if _, err := server.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if status, body := get(t, app, "/v1/auth?domain=demo&user=bob"); status != 204 {
			return fmt.Errorf("the second password: %d %s", status, body)
		}
		return nil
	})
	for _, o := range []Options{
		{Store: strings.Replace(server.URL(), "://", "://weir:hunter2@", 1), StorePasswords: store.Passwords{File: file}},
		{Store: url, StorePasswords: store.Passwords{File: file + "?"}},
		{Store: url, StorePasswords: store.Passwords{SentinelFile: file}},
		{Store: "memory", StorePasswords: store.Passwords{File: file}},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "store") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v", o.StorePasswords, err)
		}
	}
}

// TestFindingsInReadiness: a store that cannot work keeps the server from being
// ready; one that works badly is told.
func TestFindingsInReadiness(t *testing.T) {
	t.Parallel()
	for want, server := range map[string]*testserver.Redis{
		"503 a node of a cluster": testserver.StartRedis(t, "--cluster-enabled", "yes"),
		"503 a replica":           testserver.StartRedis(t, "--replicaof", "127.0.0.1 1"),
		"200 allkeys-lru":         testserver.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"),
	} {
		app := start(t, Options{Store: server.URL()})
		status, body := details(t, app)
		code, text, _ := strings.Cut(want, " ")
		if fmt.Sprint(status) != code || !strings.Contains(body, text) || !strings.Contains(body, `"name":"store settings","ok":false`) {
			t.Errorf("%s: %d %s", want, status, body)
		}
	}
}
