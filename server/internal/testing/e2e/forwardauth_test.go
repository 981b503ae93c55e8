package e2e

import (
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// traefik runs a proxy before an application that asks Weir as Traefik 3.7 does by the shipped
// configuration, and returns its address. Its requests follow https://doc.traefik.io/traefik/reference/routing-configuration/http/middlewares/forwardauth/
// and github.com/traefik/traefik v3.7.13, pkg/middlewares/auth/forward.go (writeHeader) and
// pkg/middlewares/forwardedheaders/forwarded_header.go: a GET to the address as it is configured, without body. Of the client's
// headers go along those of authRequestHeaders, or all without one, less hop-by-hop ones and, with trustForwardHeader false,
// every X-Forwarded-… and X-Real-IP; then X-Forwarded-For is set to the peer's address, and -Method, -Proto, -Port, -Host and -Uri
// to what the client asked. 2xx lets pass, and nothing of the answer reaches the client. Any other answer is handed on: status,
// body, and headers but hop-by-hop ones.
func traefik(t *testing.T, w *weir, app *application) string {
	t.Helper()
	var conf struct {
		HTTP struct {
			Middlewares map[string]struct {
				ForwardAuth struct {
					Address               string
					TrustForwardHeader    *bool    `yaml:"trustForwardHeader"`
					AuthRequestHeaders    []string `yaml:"authRequestHeaders"`
					PreserveRequestMethod bool     `yaml:"preserveRequestMethod"`
				} `yaml:"forwardAuth"`
			}
		}
	}
	if err := yaml.Unmarshal([]byte(text(t, "traefik", "dynamic.yaml")), &conf); err != nil {
		t.Fatal(err)
	}
	auth := conf.HTTP.Middlewares["weir"].ForwardAuth
	if auth.TrustForwardHeader == nil || *auth.TrustForwardHeader || len(auth.AuthRequestHeaders) == 0 || auth.PreserveRequestMethod {
		t.Fatalf("dynamic.yaml lets a client's headers through: %+v", auth)
	}
	address, err := url.Parse(auth.Address)
	if err != nil {
		t.Fatal(err)
	}
	address.Host, address.User = w.addr, url.UserPassword("weir", token) // as the example says of tokens
	client := newClient(t)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	proxy := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		q, _ := http.NewRequest(http.MethodGet, address.String(), nil) // the address was parsed
		for _, name := range auth.AuthRequestHeaders {
			if values := r.Header.Values(name); len(values) > 0 {
				q.Header[http.CanonicalHeaderKey(name)] = values
			}
		}
		peer, _, _ := net.SplitHostPort(r.RemoteAddr)
		for name, value := range map[string]string{"For": peer, "Proto": "http", "Port": "8000", "Host": r.Host, "Method": r.Method, "Uri": r.URL.RequestURI()} {
			q.Header.Set("X-Forwarded-"+name, value)
		}
		q.Header["User-Agent"] = []string{""}
		answer, err := client.Do(q)
		if err != nil {
			http.Error(out, err.Error(), http.StatusInternalServerError)
			return
		}
		defer answer.Body.Close()
		if answer.StatusCode/100 == 2 {
			app.asked.Add(1)
			return
		}
		maps.Copy(out.Header(), answer.Header)
		out.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(out, answer.Body)
	}))
	t.Cleanup(proxy.Close)
	return proxy.Listener.Addr().String()
}

// token is what the proxies have to know.
const token = "0123456789-proxies"

func tokenFile(t *testing.T) string {
	t.Helper()
	return newVault(t).file("token", token+"\n")
}

// serveExample serves the rules of an example as its README says, to those who know the token.
func serveExample(t *testing.T, folder string) *weir {
	t.Helper()
	strategy := match(t, text(t, folder, "README.md"), `--client-ip (\S+)`)
	return serve(t, filepath.Join("../../../../examples", folder, "rules.yaml"), "memory", "--client-ip", strategy, "--http-token-file", tokenFile(t))
}

// TestTraefik drives the shipped example as its proxy does.
func TestTraefik(t *testing.T) {
	t.Parallel()
	w, app := serveExample(t, "traefik"), newApplication(t)
	s := site{t: t, client: newClient(t), url: "http://" + traefik(t, w, app)}
	played(t, &s, app)
	r := s.get("/")
	s.checkTold(r)
	if r.status != http.StatusTooManyRequests {
		t.Errorf("after the limit: %d", r.status)
	}
}

// configure writes files of an example with other addresses and timeouts, and returns
// their folder.
func configure(t *testing.T, folder string, files []string, replaced map[string]string) string {
	t.Helper()
	dir, found := t.TempDir(), map[string]bool{}
	var pairs []string
	for old, replacement := range replaced {
		pairs = append(pairs, old, replacement)
	}
	// All at once: an address may begin as one that is replaced.
	replacer := strings.NewReplacer(pairs...)
	for _, file := range files {
		conf := text(t, folder, file)
		for old := range replaced {
			found[old] = found[old] || strings.Contains(conf, old)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(replacer.Replace(conf)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for old := range replaced {
		if !found[old] {
			t.Fatalf("%s of examples/%s do not contain %q", files, folder, old)
		}
	}
	return dir
}

// judge plays with a proxy that runs a shipped example: a client gets its limit and no
// more. Without Weir, and with one that hangs, requests pass.
func judge(t *testing.T, addr string, w *weir, app *application) {
	t.Helper()
	s := site{t: t, client: newClient(t), url: "http://" + addr}
	played(t, &s, app)
	s.checkTold(s.get("/"))
	without := func(how string) {
		if r := s.get("/"); r.status != http.StatusOK || r.header.Get("RateLimit") != "" {
			t.Errorf("%s: %d, RateLimit %q; want 200 and none", how, r.status, r.header.Get("RateLimit"))
		}
	}
	if err := w.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var stopped syscall.WaitStatus
	if _, err := syscall.Wait4(w.Cmd.Process.Pid, &stopped, syscall.WUNTRACED, nil); err != nil || !stopped.Stopped() {
		t.Fatalf("it did not stop: %v, %v", stopped, err)
	}
	without("a Weir that hangs")
	if err := w.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.Stop(syscall.SIGTERM)
	without("no Weir")
}

// TestCaddy runs the shipped example with the real program.
func TestCaddy(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "caddy")
	w, app, addr := serveExample(t, "caddy"), newApplication(t), testserver.FreeAddr(t)
	dir := configure(t, "caddy", []string{"Caddyfile"}, map[string]string{
		"http://127.0.0.1:8000": "http://" + addr, "127.0.0.1:8080": w.addr, "127.0.0.1:3000": app.addr, "timeout 1s": "timeout 5s",
		"header_up -Authorization": "", "# header_up Authorization": "header_up Authorization",
	})
	env := []string{"WEIR_TOKEN=" + token, "HOME=" + dir}
	await(t, start(t, env, program, "run", "--adapter", "caddyfile", "--config", filepath.Join(dir, "Caddyfile")), addr)
	judge(t, addr, w, app)
}

// TestHAProxy runs the shipped example with the real program.
func TestHAProxy(t *testing.T) {
	t.Parallel()
	program := testserver.Require(t, "haproxy")
	w, app, addr := serveExample(t, "haproxy"), newApplication(t), testserver.FreeAddr(t)
	dir := configure(t, "haproxy", []string{"haproxy.cfg", "weir.lua"}, map[string]string{
		"127.0.0.1:8000": addr, "127.0.0.1:8080": w.addr, "127.0.0.1:3000": app.addr, "patience = 250": "patience = 3000",
		"examples/haproxy/weir.lua": "weir.lua", "authorization = nil": `authorization = {"Bearer ` + token + `"}`,
	})
	await(t, start(t, nil, program, "-C", dir, "-f", "haproxy.cfg"), addr)
	judge(t, addr, w, app)
}

// A game is what a client does to get more than its limit.
type game struct {
	method, path string
	header       http.Header
	body         string
}

// size is about how long the request's head is.
func (g game) size() int {
	n := len(g.path)
	for _, values := range g.header {
		n += len(strings.Join(values, ""))
	}
	return n
}

// games are tried in turn until well beyond the limit.
var games = []game{
	{},
	{header: http.Header{"X-Real-Ip": {"10.0.0.1"}, "X-Forwarded-For": {"10.0.0.2, 10.0.0.3"}}},
	{header: http.Header{"X-Forwarded-For": {"10.0.0.4", "10.0.0.5"}, "X-Real-Ip": {"10.0.0.6", "10.0.0.7"}}},
	{header: http.Header{"X-Forwarded-For": {""}, "X-Real-Ip": {""}, "Forwarded": {""}}},
	{header: http.Header{"Forwarded": {`for=10.0.0.8, for="10.0.0.9`}, "X_forwarded_for": {"10.0.0.10"}, "X_Real_IP": {"10.0.0.10"}}},
	{header: http.Header{"X-Forwarded-For": {strings.Repeat("10.0.0.11, ", 300)}}},
	{header: http.Header{"X-Forwarded-For": {"%31%30.0.0.12&cost=0"}, "X-Real-Ip": {"10.0.0.13&cost=0&domain=other"}}},
	{header: http.Header{"Connection": {"X-Forwarded-For", "X-Real-Ip"}, "X-Forwarded-For": {"10.0.0.14"}}},
	{header: http.Header{"X-Forwarded-Method": {"HEAD"}, "X-Forwarded-Uri": {"/v1/auth?cost=0"}, "X-Forwarded-Host": {"other"}, "X-Original-Uri": {"/healthz"}}},
	{header: http.Header{"X-Http-Method-Override": {"OPTIONS"}, "X-Rewrite-Url": {"/healthz"}, "X-Original-Url": {"/healthz"}}},
	{header: http.Header{"Ratelimit": {`"x";r=99`}, "Weir-Id": {"one"}, "Idempotency-Key": {"one"}}},
	{path: "/?cost=0&domain=other&deny=204&id=one&from=remote_address=X-Other&entry=a=b"},
	{path: "/%3Fcost%3D0%26domain%3Dother"},
	{path: "/..%2f..%2fhealthz?%26cost=0%00"},
	{path: "/healthz"},
	{path: "/v1/auth?domain=web&remote_address=10.0.0.15"},
	{header: http.Header{"X-A": {strings.Repeat("a", 7000)}, "X-B": {strings.Repeat("b", 7000)}, "X-C": {strings.Repeat("c", 7000)}}},
	{header: http.Header{"Accept": {strings.Repeat("a", 200<<10)}}},
	{header: http.Header{"Cookie": {strings.Repeat("a", 900<<10)}}},
	{path: "/?" + strings.Repeat("a", 7000), header: http.Header{"X-A": {strings.Repeat("a", 7000)}, "X-B": {strings.Repeat("b", 7000)}}},
	{path: "/?" + strings.Repeat("a", 900<<10)},
	{method: http.MethodHead},
	{method: http.MethodOptions, header: http.Header{"Origin": {"http://other"}, "Access-Control-Request-Method": {"GET"}}},
	{method: http.MethodPost, body: `{"domain":"web","cost":0}`, header: http.Header{"Content-Type": {"application/json"}}},
	{method: http.MethodPut, body: "cost=0&domain=other", header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}},
}

// refusals are statuses that are no way to the application.
var refusals = []int{http.StatusTooManyRequests, http.StatusBadRequest, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge}

// played demands that a client gets its limit and no more, whatever it does.
func played(t *testing.T, s *site, app *application) {
	t.Helper()
	passed := int64(0)
	for i := range 4 * len(games) {
		g := games[i%len(games)]
		r, err := http.NewRequest(g.method, s.url+"/", strings.NewReader(g.body))
		if err != nil {
			t.Fatal(err)
		}
		if g.path != "" {
			r.URL.Opaque = "//" + r.URL.Host + g.path // as it stands, unescaped
		}
		r.Header = g.header.Clone()
		got, err := s.client.Do(r)
		if err != nil && g.size() > 10<<10 {
			continue // a proxy may close the connection rather than read so much
		}
		if err != nil {
			t.Fatalf("%.200v: %v", g, err)
		}
		_, _ = io.Copy(io.Discard, got.Body)
		got.Body.Close()
		if got.StatusCode == http.StatusOK {
			passed++
		} else if !slices.Contains(refusals, got.StatusCode) {
			t.Errorf("%.200v: got %d", g, got.StatusCode)
		}
	}
	if passed != ofExample || app.asked.Load() != ofExample {
		t.Errorf("%d passed, %d reached the application, want %d", passed, app.asked.Load(), ofExample)
	}
}

func text(t *testing.T, folder, file string) string {
	t.Helper()
	read, err := os.ReadFile(filepath.Join("../../../../examples", folder, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(read)
}

func match(t *testing.T, text, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("nothing like %s", pattern)
	}
	return found[1]
}
