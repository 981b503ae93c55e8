package e2e

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// An edge is a running Envoy.
type edge struct {
	*process
	t     *testing.T
	addr  string // of its first listener
	admin string
}

// startEnvoy runs Envoy with a configuration in which changes, old and new in turn, were made. Its
// first listener gets a free port.
func startEnvoy(t *testing.T, config string, changes ...string) *edge {
	t.Helper()
	return startWorkers(t, 2, config, changes...)
}

// startWorkers is startEnvoy with a number of worker threads.
func startWorkers(t *testing.T, workers int, config string, changes ...string) *edge {
	t.Helper()
	program := testserver.Require(t, "envoy")
	e := &edge{t: t, addr: testserver.FreeAddr(t), admin: testserver.FreeAddr(t)}
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(config, changes[i]) {
			t.Fatalf("the configuration does not contain %q", changes[i])
		}
		config = strings.ReplaceAll(config, changes[i], changes[i+1])
	}
	// On a busy machine an answer may take longer, and a request that passes without a decision
	// would spoil the count.
	config = strings.ReplaceAll(config, "timeout: 0.5s", "timeout: 5s")
	config = listenerAddress.ReplaceAllString(config, "socket_address: "+socket(e.addr))
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, []byte(config+"\nadmin: {address: {socket_address: "+socket(e.admin)+"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.process = start(t, nil, program, "-c", file, "--concurrency", strconv.Itoa(workers), "--disable-hot-restart", "-l", "warning")
	testserver.Eventually(t, "Envoy is ready", func() bool {
		select {
		case <-e.Exited:
			t.Fatalf("Envoy ended: %s", e.Stderr)
		default:
		}
		resp, err := http.Get("http://" + e.admin + "/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return e
}

var listenerAddress = regexp.MustCompile(`socket_address: \{address: 0\.0\.0\.0, port_value: 8001\}`)

// socket is an address as Envoy writes it.
func socket(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return fmt.Sprintf("{address: %s, port_value: %s}", host, port)
}

// at is where a cluster of the configurations finds a server.
func at(name string, port int) string {
	return fmt.Sprintf("socket_address: {address: %s, port_value: %d}", name, port)
}

// send sends a request with further header lines, each as "Name: value", in whatever bytes, and
// returns the status and the header of the answer.
func (e *edge) send(path string, lines ...string) (status int, header http.Header) {
	e.t.Helper()
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n%s\r\n", path, strings.Join(append(lines, ""), "\r\n"))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		e.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header
}

// passes sends a request eight times and returns how many pass.
func (e *edge) passes(path string, lines ...string) (n int) {
	e.t.Helper()
	for range 8 {
		switch status, _ := e.send(path, lines...); status {
		case http.StatusOK:
			n++
		case http.StatusTooManyRequests:
		default:
			e.t.Fatalf("status %d", status)
		}
	}
	return n
}

// stat returns the sum of the counters whose names end so.
func (e *edge) stat(suffix string) (sum int) {
	e.t.Helper()
	resp, err := http.Get("http://" + e.admin + "/stats")
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.Atoi(value); err == nil && strings.HasSuffix(name, suffix) {
			sum += n
		}
	}
	return sum
}

// wantDecided demands that Envoy got a decision for all that it asked.
func (e *edge) wantDecided() {
	e.t.Helper()
	if n, allowed := e.stat(".ratelimit.error"), e.stat(".ratelimit.failure_mode_allowed"); n != 0 || allowed != 0 {
		e.t.Errorf("%d calls without a decision, %d of them passed", n, allowed)
	}
}

// A backend is the application behind Envoy. It answers when it is told to.
type backend struct {
	addr    string
	running atomic.Int64 // requests
	hold    atomic.Pointer[chan struct{}]
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	b := new(backend)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.running.Add(1)
		defer b.running.Add(-1)
		_, _ = io.Copy(io.Discard, r.Body)
		if hold := b.hold.Load(); hold != nil {
			select {
			case <-*hold:
			case <-r.Context().Done():
			}
		}
		if used := r.Header.Get("X-Use"); used != "" {
			w.Header().Set("X-Used-Tokens", used)
		}
	}))
	t.Cleanup(s.Close)
	b.addr = s.Listener.Addr().String()
	return b
}

// block makes the backend keep its answers until the returned function is called.
func (b *backend) block() (release func()) {
	hold := make(chan struct{})
	b.hold.Store(&hold)
	return sync.OnceFunc(func() { b.hold.Store(nil); close(hold) })
}

// envoyPage returns the configurations of docs/envoy.md, and the rules beside them, by what they have.
func envoyPage(t *testing.T, has string) string {
	t.Helper()
	for _, b := range pages.Blocks(t, "docs/envoy.md") {
		if b.Language == "yaml" && strings.Contains(b.Text, has) {
			return b.Text
		}
	}
	t.Fatalf("docs/envoy.md has no block with %s", has)
	return ""
}

// servePage serves rules of docs/envoy.md.
func servePage(t *testing.T, has string) *weir {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(envoyPage(t, has)), 0o600); err != nil {
		t.Fatal(err)
	}
	return serve(t, file, "memory")
}

// assembled is the first configuration of the page, whose parts stand one below the other, as a
// whole.
func assembled(t *testing.T, more string) string {
	t.Helper()
	clusters, rest, _ := strings.Cut(envoyPage(t, "clusters:\n  - name: weir"), "http_filters:")
	filters, limits, found := strings.Cut(rest, "# in a route:")
	if !found {
		t.Fatal("the page has no clusters, http_filters and route")
	}
	return `static_resources:
  listeners:
    - name: edge
      address: {socket_address: {address: 0.0.0.0, port_value: 8001}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: edge
                use_remote_address: true
                max_request_headers_kb: 1024
                route_config:
                  virtual_hosts:
                    - name: application
                      domains: ["*"]
                      routes:
` + more + `
                        - match: {prefix: /}
                          route:
                            cluster: application
` + indented(limits, 28) + `
                http_filters:
` + indented(filters, 16) + `
                  - name: envoy.filters.http.router
                    typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  ` + strings.ReplaceAll(strings.TrimSpace(clusters), "\n", "\n  ") + `
    - name: application
      type: STRICT_DNS
      load_assignment:
        cluster_name: application
        endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: application, port_value: 8080}}}}]}]
`
}

func indented(text string, spaces int) string {
	return strings.ReplaceAll("\n"+strings.Trim(text, "\n"), "\n", "\n"+strings.Repeat(" ", spaces))[1:]
}

// TestEnvoyFirstPage runs Envoy with the first configuration of docs/envoy.md.
func TestEnvoyFirstPage(t *testing.T) {
	t.Parallel()
	w, b := servePage(t, "name: per-address"), newBackend(t)
	e := startEnvoy(t, assembled(t, ""), at("weir", 8081), "socket_address: "+socket(w.grpc), at("application", 8080), "socket_address: "+socket(b.addr))
	passed, headers := 0, 0
	const asked = 250 // of an address, in at most two of its minutes
	for range asked {
		status, header := e.send("/")
		if status == http.StatusOK {
			passed++
		}
		if header.Get("X-Ratelimit-Limit") != "" && header.Get("X-Ratelimit-Reset") != "" {
			headers++
		}
	}
	if passed < 100 || passed > 200 || headers != asked {
		t.Errorf("%d of %d pass, %d with headers", passed, asked, headers)
	}
	e.wantDecided()
}

// TestEnvoyCompose runs Envoy with the configuration of the compose file.
func TestEnvoyCompose(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(pages.Path("deploy/compose/envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w, b := serve(t, pages.Path("deploy/compose/rules"), "memory"), newBackend(t)
	e := startEnvoy(t, string(text), at("weir", 8081), "socket_address: "+socket(w.grpc), at("application", 3000), "socket_address: "+socket(b.addr))
	passed := 0
	for range 60 {
		if status, _ := e.send("/"); status == http.StatusOK {
			passed++
		}
	}
	if passed < 30 || passed == 60 {
		t.Errorf("%d of 60 pass", passed)
	}
	e.wantDecided()
}

// TestEnvoySlots runs Envoy with the configuration of docs/envoy.md that limits requests in
// flight: ends free slots, also those of clients that leave.
func TestEnvoySlots(t *testing.T) {
	t.Parallel()
	w, b := servePage(t, "algorithm: concurrency}   # 10 requests"), newBackend(t)
	e := startEnvoy(t, envoyPage(t, "hits_addend: {number: 1, is_negative_hits: true}"),
		at("weir", 8081), "socket_address: "+socket(w.grpc), at("application", 8080), "socket_address: "+socket(b.addr))
	const user, slots = "X-User-Id: a", 10
	for range 2 {
		release := b.block()
		defer release()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var clients sync.WaitGroup
		for i := range slots {
			of := t.Context()
			if i%2 == 0 {
				of = ctx
			}
			clients.Go(func() {
				req, _ := http.NewRequestWithContext(of, http.MethodGet, "http://"+e.addr+"/", nil)
				req.Header.Set("X-User-Id", "a")
				resp, err := http.DefaultClient.Do(req)
				if err == nil {
					resp.Body.Close()
				}
				if of == t.Context() && (err != nil || resp.StatusCode != http.StatusOK) {
					t.Errorf("in a slot: %v, %v", resp, err)
				}
			})
		}
		testserver.Eventually(t, "all slots are taken", func() bool { return b.running.Load() == slots })
		if status, _ := e.send("/", user); status != http.StatusTooManyRequests {
			t.Errorf("beyond the slots: %d", status)
		}
		leave()
		testserver.Eventually(t, "the slots of those who left are free", func() bool { return w.remaining(t, "user", "a") == slots/2 })
		release()
		clients.Wait()
		testserver.Eventually(t, "all slots are free", func() bool { return w.remaining(t, "user", "a") == slots })
	}
	e.wantDecided()
}

var remaining = regexp.MustCompile(`"remaining":(\d+)`)

// remaining peeks at a key of the domain edge.
func (w *weir) remaining(t *testing.T, key, value string) int {
	t.Helper()
	resp, err := http.Post(w.url()+"/v1/take", "application/json", strings.NewReader(fmt.Sprintf(`{"domain":"edge","cost":0,"descriptors":[{"entries":[{"key":%q,"value":%q}]}]}`, key, value)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	found := remaining.FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s", text)
	}
	n, _ := strconv.Atoi(string(found[1]))
	return n
}

// TestEnvoyTokens runs Envoy with the configuration of docs/envoy.md that settles estimates.
func TestEnvoyTokens(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	// A limit that hardly drains while the test looks.
	if err := os.WriteFile(rules, []byte(strings.Replace(envoyPage(t, "# 100 000 tokens a minute"), "unit: minute", "unit: year", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	w, b := serve(t, rules, "memory"), newBackend(t)
	e := startEnvoy(t, envoyPage(t, "tokens:estimate"), at("weir", 8081), "socket_address: "+socket(w.grpc), at("model", 8080), "socket_address: "+socket(b.addr))
	for i, c := range []struct {
		use  string
		cost int
	}{{"40", 40}, {"9000", 9000}, {"", 1500}, {"1500", 1500}, {"150000", 150_000}} {
		user := fmt.Sprint("user", i) // without a body: the estimate is 1500
		if status, _ := e.send("/", "X-User-Id: "+user, "X-Use: "+c.use); status != http.StatusOK {
			t.Errorf("%q: status %d", c.use, status)
		}
		testserver.Eventually(t, "tokens are settled", func() bool {
			left := w.remaining(t, "user", user)
			return left == max(0, 100_000-c.cost)
		})
	}
	// Beyond the limit: refused, and not settled.
	if status, _ := e.send("/", "X-User-Id: user4", "X-Use: 1"); status != http.StatusTooManyRequests {
		t.Errorf("beyond the limit: %d", status)
	}
	e.wantDecided()
}

// TestEnvoyValues: whatever a client puts into its request, its limit counts. Envoy passes what
// gets no decision.
func TestEnvoyValues(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(`
domain: edge
descriptors:
  - {key: path, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: token, rate_limit: {unit: year, requests_per_unit: 3, algorithm: gcra, burst: 3}}
  - {key: slots, rate_limit: {requests_per_unit: 3, period: 1h, algorithm: concurrency}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	w, b := serve(t, rules, "memory"), newBackend(t)
	many := strings.Repeat("                              - actions: [{request_headers: {header_name: x-long, descriptor_key: path}}]\n", 20)
	e := startEnvoy(t, assembled(t, `
                        - match: {prefix: /path}
                          route:
                            cluster: application
                            rate_limits: [{actions: [{request_headers: {header_name: ":path", descriptor_key: path}}]}]
                        - match: {prefix: /token}
                          route:
                            cluster: application
                            rate_limits: [{actions: [{request_headers: {header_name: x-token, descriptor_key: token}}]}]
                        - match: {prefix: /slots}
                          route: {cluster: application}
                          typed_per_filter_config:
                            envoy.filters.http.ratelimit:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                              rate_limits:
                                - actions: [{generic_key: {descriptor_key: slots, descriptor_value: a}}]
                                  hits_addend: {number: 100000}
                        - match: {prefix: /many}
                          route:
                            cluster: application
                            rate_limits:
`+many), at("weir", 8081), "socket_address: "+socket(w.grpc), at("application", 8080), "socket_address: "+socket(b.addr))
	for name, c := range map[string]struct {
		path string
		line string
		want int
	}{
		"an ordinary path":        {"/path", "X: y", 3},
		"a padded path":           {"/path?" + strings.Repeat("a", 16_800), "X: y", 3},
		"another padded path":     {"/path?" + strings.Repeat("a", 16_801), "X: y", 3},
		"a very long path":        {"/path?" + strings.Repeat("b", 100_000), "X: y", 3},
		"a token":                 {"/token", "X-Token: t", 3},
		"a token that is no text": {"/token", "X-Token: \xff\xfe\xc3\x28", 3},
		"a long one":              {"/token", "X-Token: \xff" + strings.Repeat("t", 60_000), 3},
		"280 KB in 20 values":     {"/many", "X-Long: " + strings.Repeat("x", 14_000), 0},
		"more slots than any":     {"/slots", "X: y", 0},
	} {
		if n := e.passes(c.path, c.line); n != c.want {
			t.Errorf("%s: %d of 8 pass, want %d", name, n, c.want)
		}
	}
	if _, told := e.send("/slots"); told.Get("X-Ratelimit-Reset") != "2147483647" {
		t.Errorf("a request that never fits is told %v", told)
	}
	e.wantDecided()
}

// TestEnvoyRestarts has two instances on one Redis behind Envoy, as the page configures it. While
// clients call, each instance is restarted, killed and paused.
func TestEnvoyRestarts(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("domain: edge\ndescriptors:\n  - {key: generic_key, value: checkout, rate_limit: {unit: day, requests_per_unit: 1000000000, algorithm: gcra}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store, b := testserver.StartRedis(t), newBackend(t)
	addrs := [2]string{testserver.FreeAddr(t), testserver.FreeAddr(t)}
	// The delay is for machines on which a health check may take seconds.
	run := func(i int) *weir { return serve(t, rules, store.URL(), "--grpc", addrs[i], "--drain-delay", "4s") }
	instances := [2]*weir{run(0), run(1)}
	e := startEnvoy(t, assembled(t, ""),
		"- endpoint: {address: {"+at("weir", 8081)+"}}",
		fmt.Sprintf("- endpoint: {address: {socket_address: %s}}\n              - endpoint: {address: {socket_address: %s}}", socket(addrs[0]), socket(addrs[1])),
		at("application", 8080), "socket_address: "+socket(b.addr))
	healthy := func(n int) {
		t.Helper()
		testserver.Eventually(t, fmt.Sprint("Envoy finds ", n, " instances healthy"), func() bool { return e.stat("cluster.weir.membership_healthy") == n })
	}
	healthy(2)
	ctx, stop := context.WithCancel(t.Context())
	var calls atomic.Int64
	var clients sync.WaitGroup
	client := newClient(t)
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				resp, err := client.Get("http://" + e.addr + "/")
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				calls.Add(1)
			}
		})
	}
	some := func() {
		t.Helper()
		from := calls.Load()
		testserver.Eventually(t, "calls go on", func() bool { return calls.Load() > from+50 })
	}
	some()
	for i := range instances { // one after the other, without a pause
		instances[i].Stop(syscall.SIGTERM)
		instances[i] = run(i)
		healthy(2)
	}
	some()
	e.wantDecided()
	// An instance that is killed or paused takes the calls with it that it has. Once Envoy has
	// found that, no further ones are lost.
	noneLost := func() {
		t.Helper()
		testserver.Eventually(t, "all calls get a decision", func() bool {
			lost := e.stat(".ratelimit.error")
			some()
			return e.stat(".ratelimit.error") == lost
		})
	}
	instances[0].Stop(syscall.SIGKILL)
	healthy(1)
	noneLost()
	instances[0] = run(0)
	healthy(2)
	if err := instances[1].Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	healthy(1)
	noneLost()
	if err := instances[1].Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	healthy(2)
	noneLost()
	stop()
	clients.Wait()
}

// certificate writes a certificate that is server, client and authority in one.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"weir"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	err = errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// ways is an Envoy with a filter for each way to Weir. A request asks the one whose header it has.
const ways = `
static_resources:
  listeners:
    - name: edge
      address: {socket_address: {address: 0.0.0.0, port_value: 8001}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: edge
                route_config:
                  virtual_hosts:
                    - name: application
                      domains: ["*"]
                      rate_limits:
                        - {stage: 0, actions: [{request_headers: {header_name: x-tls, descriptor_key: user}}]}
                        - {stage: 1, actions: [{request_headers: {header_name: x-google, descriptor_key: user}}]}
                        - {stage: 2, actions: [{request_headers: {header_name: x-unix, descriptor_key: user}}]}
                        - stage: 2
                          actions: [{request_headers: {header_name: x-override, descriptor_key: none}}]
                          limit: {dynamic_metadata: {metadata_key: {key: override, path: [{key: limit}]}}}
                      routes:
                        - match: {prefix: /}
                          route: {cluster: application, include_vh_rate_limits: true}
                http_filters:
                  - name: override
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
                      default_source_code:
                        inline_string: |
                          function envoy_on_request(handle)
                            handle:streamInfo():dynamicMetadata():set("override", "limit", {requests_per_unit = 2, unit = "YEAR"})
                          end
FILTERS
                  - name: envoy.filters.http.router
                    typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
    - name: tls
      type: STATIC
      typed_extension_protocol_options: &h2
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          sni: weir
          common_tls_context:
            tls_certificates: [{certificate_chain: {filename: CERT}, private_key: {filename: KEY}}]
            validation_context: {trusted_ca: {filename: CERT}, match_typed_subject_alt_names: [{san_type: DNS, matcher: {exact: weir}}]}
      load_assignment: {cluster_name: tls, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: TLS}}}]}]}
    - name: unix
      type: STATIC
      typed_extension_protocol_options: *h2
      load_assignment: {cluster_name: unix, endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: UNIX}}}}]}]}
    - name: application
      type: STATIC
      load_assignment: {cluster_name: application, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: APPLICATION}}}]}]}
`

// TestEnvoyWays asks over mutual TLS, by Google's gRPC client and over a Unix socket, with limits of
// the virtual host, and with one that comes with the request.
func TestEnvoyWays(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: year, requests_per_unit: 3}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := certificate(t)
	folder, err := os.MkdirTemp("", "weir-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	secured := serve(t, rules, "memory", "--grpc-tls-cert", cert, "--grpc-tls-key", key, "--grpc-tls-client-ca", cert, "--grpc-tls-client-san", "weir")
	serve(t, rules, "memory", "--grpc", "unix:"+folder+"/w")
	google, b := serve(t, rules, "memory"), newBackend(t)
	filters := ""
	for stage, service := range []string{
		"envoy_grpc: {cluster_name: tls}", "google_grpc: {target_uri: \"" + google.grpc + "\", stat_prefix: weir}", "envoy_grpc: {cluster_name: unix}",
	} {
		filters += fmt.Sprintf(`                  - name: envoy.filters.http.ratelimit.%d
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: edge
                      stage: %d
                      timeout: 5s
                      enable_x_ratelimit_headers: DRAFT_VERSION_03
                      rate_limit_service: {transport_api_version: V3, grpc_service: {%s}}
`, stage, stage, service)
	}
	e := startEnvoy(t, ways, "FILTERS\n", filters, "CERT", cert, "KEY", key, "TLS}", socket(secured.grpc)+"}", "UNIX", folder+"/w", "APPLICATION", socket(b.addr))
	for header, want := range map[string]int{"X-Tls": 3, "X-Google": 3, "X-Unix": 3, "X-Override": 2, "X-None": 8} {
		if n := e.passes("/", header+": a"); n != want {
			t.Errorf("%s: %d of 8 pass, want %d", header, n, want)
		}
	}
	status, told := e.send("/", "X-Google: b")
	if status != http.StatusOK || told.Get("X-Ratelimit-Limit") != "3, 3;w=31536000" || told.Get("X-Ratelimit-Remaining") != "2" {
		t.Errorf("%d, told %v", status, told)
	}
	e.wantDecided()
}
