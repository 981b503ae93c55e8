package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

const (
	example = "../../../../examples/nginx"
	// ofExample is the limit in the example's rules, per minute.
	ofExample = 30
)

// TestNginx plays with the shipped example: real nginx, Redis and weir, and an
// application behind them.
func TestNginx(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "nginx")
	store := testserver.StartRedis(t)
	w := serve(t, filepath.Join(example, "rules.yaml"), store.URL())
	app := newApplication(t)
	judge(t, startNginx(t, program, w.addr, app.addr), w, app)
}

// TestNginxWithoutStore takes the store away from a Weir that goes on running.
func TestNginxWithoutStore(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "nginx")
	store := testserver.StartRedis(t)
	w := serve(t, filepath.Join(example, "rules.yaml"), store.URL())
	s := site{t: t, client: newClient(t), url: "http://" + startNginx(t, program, w.addr, newApplication(t).addr)}
	if r := s.get("/forbidden"); r.status != http.StatusForbidden || r.body != "the application's own" {
		t.Errorf("the application's 403 became %d %q", r.status, r.body)
	}
	if r := s.get("/"); r.status != http.StatusOK {
		t.Fatalf("with the store: %d, want 200", r.status)
	}
	store.Kill()
	if r := s.get("/"); r.status != http.StatusOK {
		t.Errorf("without the store: %d, want 200", r.status)
	}
}

// An application is what nginx protects.
type application struct {
	addr  string
	asked atomic.Int64
}

func newApplication(t *testing.T) *application {
	a := new(application)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.asked.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // nginx answers 502 if it cannot send all
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "the application's own")
		}
	}))
	t.Cleanup(server.Close)
	a.addr = server.Listener.Addr().String()
	return a
}

// A site is nginx as its clients see it.
type site struct {
	t      *testing.T
	client *http.Client
	url    string
}

type response struct {
	status int
	header http.Header
	body   string
}

func (s *site) get(path string) response {
	s.t.Helper()
	resp, err := s.client.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response{resp.StatusCode, resp.Header, string(body)}
}

// checkTold demands that an answer tells the client about the limit.
func (s *site) checkTold(r response) {
	s.t.Helper()
	for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
		if r.header.Get(name) == "" {
			s.t.Errorf("an answer %d has no %s: %v", r.status, name, r.header)
		}
	}
	retry, err := strconv.Atoi(r.header.Get("Retry-After"))
	refused := r.status == http.StatusTooManyRequests
	if refused && (err != nil || retry < 1 || retry > 60) || !refused && r.header.Get("Retry-After") != "" {
		s.t.Errorf("an answer %d has Retry-After %q", r.status, r.header.Get("Retry-After"))
	}
	if refused && (r.header.Get("Content-Type") != "application/problem+json" || !strings.Contains(r.body, `"status":429`) || !json.Valid([]byte(r.body))) {
		s.t.Errorf("a refusal is %s: %q", r.header.Get("Content-Type"), r.body)
	}
}

// startNginx runs nginx with the shipped configuration and returns its address.
func startNginx(t *testing.T, program, weirAddr, appAddr string) string {
	t.Helper()
	return startNginxWith(t, program, weirAddr, appAddr, ";")
}

// startNginxWith has more directives behind the server's listen.
func startNginxWith(t *testing.T, program, weirAddr, appAddr, more string) string {
	t.Helper()
	prefix, listener := t.TempDir(), listenForNginx(t)
	addr := listener.Addr().String()
	text, err := os.ReadFile(filepath.Join(example, "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	conf := string(text)
	for old, replacement := range map[string]string{
		"listen 127.0.0.1:8000;": "listen " + addr + more,
		"server 127.0.0.1:8080;": "server " + weirAddr + ";",
		"server 127.0.0.1:3000;": "server " + appAddr + ";",
		// On a busy machine an answer may take longer, and a request that
		// passes unlimited would spoil the count.
		"timeout 1s;":    "timeout 5s;",
		"timeout    1s;": "timeout 5s;",
	} {
		if !strings.Contains(conf, old) {
			t.Fatalf("nginx.conf does not contain %q", old)
		}
		conf = strings.ReplaceAll(conf, old, replacement)
	}
	runNginx(t, program, prefix, listener, conf)
	return addr
}

// listenForNginx returns a listener that runNginx hands over, so that no other process can
// take the port in between.
func listenForNginx(t *testing.T) *net.TCPListener {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// runNginx starts nginx in a folder. It inherits the listener, as in an upgrade of its binary.
func runNginx(t *testing.T, program, prefix string, listener *net.TCPListener, conf string) {
	t.Helper()
	path := filepath.Join(prefix, "nginx.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { showLog(t, filepath.Join(prefix, "error.log")) })
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	cmd := command([]string{"NGINX=3;"}, program, "-p", prefix, "-c", path, "-e", "error.log", "-g", "daemon off;")
	cmd.ExtraFiles = []*os.File{file}
	testserver.Start(t, cmd)
	// Passing a file on makes it wait in accept, which nginx must not.
	if err := errors.Join(syscall.SetNonblock(int(file.Fd()), true), file.Close(), listener.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestNginxLogin: the limit for logins of docs/nginx.md has headers and a budget of its
// own, and lets requests pass when Weir is stopped.
func TestNginxLogin(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "nginx")
	files := docsFiles(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(files["login.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	w, app, prefix, listener := serve(t, rules, "memory"), newApplication(t), t.TempDir(), listenForNginx(t)
	addr := listener.Addr().String()
	server := strings.TrimSuffix(strings.TrimSpace(files["weir.conf"]), "}") + files["login.conf"] + "}\n"
	conf := strings.Replace(files["nginx.conf"], "include weir.conf;", server, 1)
	conf = strings.NewReplacer("127.0.0.1:8000", addr, "127.0.0.1:8080", w.addr, "127.0.0.1:3000", app.addr, "timeout 1s;", "timeout 10s;", "timeout    1s;", "timeout 10s;").Replace(conf)
	runNginx(t, program, prefix, listener, conf)
	get := func(path string) *http.Response {
		answer, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer
	}
	for i, want := range []int{200, 200, 200, 429, 429} {
		answer := get("/login")
		if policy := answer.Header.Get("RateLimit-Policy"); answer.StatusCode != want || policy != `"login";q=3;w=60` {
			t.Errorf("login %d: %s, %s: want %d", i, answer.Status, policy, want)
		}
		if refused := want == 429; refused != (answer.Header.Get("Retry-After") != "") {
			t.Errorf("login %d: Retry-After %q", i, answer.Header.Get("Retry-After"))
		}
	}
	if left := get("/").Header.Get("RateLimit"); !strings.HasPrefix(left, `"remote_address";r=29;`) {
		t.Errorf("the address has %s left: want 29", left)
	}
	w.Stop(syscall.SIGTERM)
	for i := range 5 {
		if answer := get("/login"); answer.StatusCode != http.StatusOK || answer.Header.Get("RateLimit") != "" {
			t.Errorf("login %d without Weir: %s", i, answer.Status)
		}
	}
}

// await returns once the process listens at the address.
func await(t *testing.T, p *process, addr string) {
	t.Helper()
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-p.Exited:
			t.Fatalf("%s ended: %v", p.Cmd.Path, p.Cmd.ProcessState)
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatalf("%s did not listen at %s within %v", p.Cmd.Path, addr, startTimeout)
}

func showLog(t *testing.T, path string) {
	if !t.Failed() {
		return
	}
	log, err := os.ReadFile(path)
	t.Logf("%s: %v\n%s", path, err, log)
}

// TestNginxAround puts what nginx does before and around a sub-request into the
// configurations that we give: each request still counts, and no other refusal becomes a 429.
func TestNginxAround(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "nginx")
	for name, conf := range givenConfigurations(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, app, prefix, listener := serve(t, filepath.Join(example, "rules.yaml"), "memory"), newApplication(t), t.TempDir(), listenForNginx(t)
			addr := listener.Addr().String()
			for old, replacement := range map[string]string{
				"http {": `http {
    proxy_cache_path cache keys_zone=pages:1m;
    proxy_cache pages; proxy_cache_key $host; proxy_cache_valid any 1h; proxy_ignore_headers Cache-Control;
    proxy_method POST; proxy_set_body "a body"; proxy_bind 127.0.0.1;
`,
				"if ($uri = /_weir) { break; }": `if ($uri = /_weir) { break; }
    client_max_body_size 1k;
    root www;
    if ($request_method = POST) { rewrite ^/upload$ /large last; }
    if (!-e $request_filename) { rewrite ^ /index.php last; }
    location = /none { return 403; }
`,
				"auth_request /_weir;": `auth_request /_weir;
        client_max_body_size 1m;
        proxy_cache off;
        deny 203.0.113.0/24;
        set_real_ip_from 127.0.0.1; real_ip_header X-Client;
        if ($http_user_agent ~ badbot) { return 403; }
`,
			} {
				if !strings.Contains(conf, old) {
					t.Fatalf("the configuration has no %q", old)
				}
				conf = strings.Replace(conf, old, replacement, 1)
			}
			conf = regexp.MustCompile(`listen [^;]*;`).ReplaceAllString(conf, "listen "+addr+";")
			conf = regexp.MustCompile(`server (127\.0\.0\.1|weir):8080;`).ReplaceAllString(conf, "server "+w.addr+";")
			conf = regexp.MustCompile(`(127\.0\.0\.1|application):3000`).ReplaceAllString(conf, app.addr)
			conf = regexp.MustCompile(`(timeout +)1s;`).ReplaceAllString(conf, "${1}10s;")
			runNginx(t, program, prefix, listener, strings.ReplaceAll(conf, "/tmp/", ""))
			for i := range ofExample + 3 {
				for kind, c := range map[string]struct {
					agent, client string
					want          int
				}{
					"granted, then refused": {"curl", "192.0.2.1", http.StatusOK},
					"a bot":                 {"badbot", "192.0.2.1", http.StatusForbidden},
					"denied":                {"curl", "203.0.113.9", http.StatusForbidden},
				} {
					if i >= ofExample && c.want == http.StatusOK {
						c.want = http.StatusTooManyRequests
					}
					request, err := http.NewRequest("POST", "http://"+addr+"/page", strings.NewReader(strings.Repeat("x", 5000)))
					if i%2 == 0 {
						request, err = http.NewRequest("GET", "http://"+addr+"/page", http.NoBody)
					}
					if err != nil {
						t.Fatal(err)
					}
					request.Header = http.Header{"User-Agent": {c.agent}, "X-Client": {c.client}}
					answer, err := http.DefaultClient.Do(request)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
					if answer.StatusCode != c.want {
						t.Fatalf("%s: answer %d is %s, want %d", kind, i, answer.Status, c.want)
					}
				}
			}
		})
	}
}

// givenConfigurations returns the complete configurations that we give.
func givenConfigurations(t *testing.T) map[string]string {
	t.Helper()
	given, files := map[string]string{}, docsFiles(t)
	given["docs"] = strings.Replace(files["nginx.conf"], "include weir.conf;", files["weir.conf"], 1)
	for name, path := range map[string]string{"example": filepath.Join(example, "nginx.conf"), "compose": "../../../../deploy/compose/nginx.conf"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		given[name] = string(text)
	}
	return given
}

// docsFiles returns the files of docs/nginx.md.
func docsFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, b := range pages.Blocks(t, "docs/nginx.md") {
		files[b.File] = b.Text
	}
	return files
}

// TestNginxPasswords: the named location of docs/nginx.md counts wrong passwords.
func TestNginxPasswords(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "nginx")
	files := docsFiles(t)
	w, app, prefix, listener := serve(t, filepath.Join(example, "rules.yaml"), "memory"), newApplication(t), t.TempDir(), listenForNginx(t)
	addr := listener.Addr().String()
	writeTo(t, filepath.Join(prefix, "users"), "ann:{PLAIN}right")
	server := strings.TrimSuffix(strings.TrimSpace(files["weir.conf"]), "}") + files["password.conf"] + "}\n"
	conf := strings.Replace(files["nginx.conf"], "include weir.conf;", server, 1)
	conf = strings.NewReplacer("127.0.0.1:8000", addr, "127.0.0.1:8080", w.addr, "127.0.0.1:3000", app.addr, "timeout 1s;", "timeout 10s;", "timeout    1s;", "timeout 10s;").Replace(conf)
	if os.Geteuid() == 0 { // others cannot read the folders of tests
		conf = "user root;\n" + conf
	}
	runNginx(t, program, prefix, listener, conf)
	for i := range ofExample + 2 {
		password, want := "wrong", http.StatusUnauthorized
		if i == 0 {
			password, want = "right", http.StatusOK
		}
		if i >= ofExample {
			password, want = "right", http.StatusTooManyRequests
		}
		request, err := http.NewRequest("GET", "http://"+addr+"/admin/users", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth("ann", password)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if asked := answer.Header.Get("WWW-Authenticate") != ""; answer.StatusCode != want || asked != (want == http.StatusUnauthorized) {
			t.Fatalf("%s password, answer %d: %s, WWW-Authenticate %t: want %d", password, i, answer.Status, asked, want)
		}
	}
}

// TestNginxValues: a client chooses the value that it is counted by. Whatever it is, the client is
// limited: the value counts, or the request is refused.
func TestNginxValues(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "nginx")
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	writeTo(t, rules, "domain: web\ndescriptors:\n  - {key: remote_address, rate_limit: {algorithm: gcra, requests_per_unit: 3, unit: year}}\n")
	w := serve(t, rules, "memory")
	text, err := os.ReadFile(filepath.Join(example, "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	listener := listenForNginx(t)
	conf := string(text)
	for old, replacement := range map[string]string{
		"listen 127.0.0.1:8000;":    "listen " + listener.Addr().String() + "; large_client_header_buffers 32 256k;",
		"server 127.0.0.1:8080;":    "server " + w.addr + ";",
		"server 127.0.0.1:3000;":    "server " + newApplication(t).addr + ";",
		"Weir-Client $weir_client;": "Weir-Client $http_x_user;",
		"timeout 1s;":               "timeout 5s;",
		"timeout    1s;":            "timeout 5s;",
	} {
		if !strings.Contains(conf, old) {
			t.Fatalf("nginx.conf does not contain %q", old)
		}
		conf = strings.ReplaceAll(conf, old, replacement)
	}
	runNginx(t, program, t.TempDir(), listener, conf)
	for name, c := range map[string]struct {
		value string
		want  int // of eight requests that pass
	}{
		"a name":                {"alice", 3},
		"a value of 17 KB":      {strings.Repeat("a", 17_000), 3},
		"another one":           {strings.Repeat("a", 17_000) + "b", 3},
		"a value of 60 KB":      {strings.Repeat("c", 60_000), 3},
		"no text":               {"\xff\xfe\xc3\x28", 3},
		"a value of 200 KB":     {strings.Repeat("d", 200_000), 0},
		"a control character":   {"a\x01b", 0},
		"a value like a digest": {"sha256:0123", 3},
	} {
		passed := 0
		for range 8 {
			conn := connect(t, listener.Addr().String())
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\nX-User: %s\r\n\r\n", c.value)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			resp.Body.Close()
			conn.Close()
			if resp.StatusCode == http.StatusOK {
				passed++
			}
		}
		if passed != c.want {
			t.Errorf("%s: %d of 8 pass, want %d", name, passed, c.want)
		}
	}
}
