package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlimit/weir/storetest"
)

// nginxConf asks before it serves, and turns the 403 that its auth_request
// understands into a 429.
const nginxConf = `
daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr;
events {}
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  server {
    listen unix:%[1]s/sock;
    location = /_limit {
      internal;
      proxy_pass http://%[2]s/v1/auth?domain=demo&deny=403&from=user=X-User;
      proxy_pass_request_body off;
      proxy_set_header Content-Length "";
    }
    location / {
      auth_request /_limit;
      auth_request_set $retry $upstream_http_retry_after;
      auth_request_set $limit $upstream_http_ratelimit;
      add_header RateLimit $limit always;
      error_page 403 = @limited;
      root %[1]s/www;
    }
    location @limited {
      add_header Retry-After $retry always;
      add_header RateLimit $limit always;
      return 429;
    }
  }
}
`

// startNginx serves www/index.html in front of the app, at the socket returned.
func startNginx(t *testing.T, app *App) string {
	t.Helper()
	program, dir := storetest.Require(t, "nginx"), t.TempDir()
	page := filepath.Join(dir, "www", "index.html")
	conf := fmt.Sprintf(nginxConf, dir, app.Addrs()[0].Address)
	for path, text := range map[string]string{page: "hello", filepath.Join(dir, "nginx.conf"): conf} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("nginx said:\n%s", &said)
		}
	})
	socket := filepath.Join(dir, "sock")
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
			return socket
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestBehindNginx(t *testing.T) {
	t.Parallel()
	socket := startNginx(t, start(t, Options{}))
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	for i := range 6 {
		req, err := http.NewRequest(http.MethodGet, "http://nginx/index.html?user=other&cost=0", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-User", "alice&user=bob")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		status, wait := http.StatusOK, ""
		if i == 5 {
			status, wait = http.StatusTooManyRequests, "6"
		}
		if resp.StatusCode != status || resp.Header.Get("Retry-After") != wait {
			t.Errorf("call %d: %s, Retry-After %q, %s", i, resp.Status, resp.Header.Get("Retry-After"), body)
		}
		if resp.Header.Get("RateLimit") == "" {
			t.Errorf("call %d: no RateLimit header", i)
		}
	}
}
