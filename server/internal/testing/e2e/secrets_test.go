package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// mark is in every secret of these tests, and in nothing else.
const mark = "CANARYCANARY"

// secret is one that is used somewhere.
func secret(where string) string { return mark + "-" + where + "-0123456789" }

// A vault has files with secrets, and looks for them in what is said.
type vault struct {
	t     *testing.T
	dir   string
	forms []string // what would tell a secret
	heard int      // how many texts were looked through
}

func newVault(t *testing.T) *vault {
	v := &vault{t: t, dir: t.TempDir(), forms: []string{strings.ToLower(mark)}}
	for shift := range 3 { // base64 of the mark, wherever it begins
		whole := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + mark))
		v.forms = append(v.forms, strings.ToLower(whole[2+shift:len(whole)-2]))
	}
	return v
}

// file writes a secret into a file that only this user can read.
func (v *vault) file(name, text string) string {
	v.t.Helper()
	path := filepath.Join(v.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		v.t.Fatal(err)
	}
	return path
}

// pair makes a certificate, and a key whose lines are secrets too.
func (v *vault) pair() (cert, key string, roots *x509.CertPool) {
	v.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		v.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		v.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		v.t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	v.forms = append(v.forms, strings.ToLower(strings.Split(text, "\n")[2]))
	return v.file("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))), v.file("key.pem", text), roots
}

// silent demands that a text tells no secret.
func (v *vault) silent(where, text string) {
	v.t.Helper()
	v.heard++
	lower := strings.ToLower(text)
	for _, form := range v.forms {
		if i := strings.Index(lower, form); i >= 0 {
			v.t.Errorf("%s tells a secret: …%s…", where, text[max(0, i-80):min(len(text), i+80)])
		}
	}
}

// call calls a listener and looks through what it answers.
func (v *vault) call(client *http.Client, r *http.Request) *http.Response {
	v.t.Helper()
	got, err := client.Do(r)
	if err != nil {
		v.silent(r.URL.Path, err.Error())
		return nil
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil && len(body) == 0 {
		v.t.Errorf("%s: %v", r.URL, err)
	}
	v.silent(r.Method+" "+r.URL.Path, fmt.Sprint(got.Status, got.Header, string(body)))
	return got
}

// TestNoSecretIsTold gives a server secrets wherever it takes some, and looks for them
// in all that it says: answers, errors, logs, metrics, profiles and spans, while all is
// well, while callers are wrong, and while the store and the files are.
func TestNoSecretIsTold(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.askAll("while all is well")
	if !g.granted.Load() {
		t.Error("nobody was let in with the right token: the rest says nothing")
	}
	g.wrongStore()
	g.askAll("while the store's password is wrong")
	g.store.Kill()
	g.askAll("while the store is away")
	g.wrongFiles()
	g.askAll("while the files are wrong")
	g.Stop(syscall.SIGTERM)
	g.silent("the log", g.Stderr.String())
	for line := range g.Lines {
		g.silent("stdout", line)
	}
	if g.spans.Load() == 0 {
		t.Error("no spans came with the collector's secret: they were not looked through")
	}
	t.Logf("%d texts were looked through", g.heard)
}

// guarded is a server that has a secret for everything.
type guarded struct {
	*vault
	*process
	store    *testserver.Redis
	addrs    map[string]string
	config   string
	tls      *tls.Config
	granted  atomic.Bool  // a caller with the right token was answered
	spans    atomic.Int64 // messages of spans, by who knew the collector's secret
	password string       // of the store
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{vault: newVault(t), password: secret("store")}
	cert, key, roots := g.pair()
	g.tls = &tls.Config{RootCAs: roots}
	g.store = testserver.StartRedis(t, "--requirepass", g.password)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") == secret("collector") {
			g.spans.Add(1)
		}
		for _, form := range g.forms {
			if strings.Contains(strings.ToLower(string(body)), form) {
				t.Errorf("a span tells a secret: %q", body)
			}
		}
	}))
	t.Cleanup(collector.Close)
	g.config = g.file("rules.yaml", "domain: seeds\ndescriptors: [{key: window, rate_limit: {algorithm: gcra, requests_per_unit: 1000, unit: second}}]\n")
	path := binary(t)
	g.process = start(t, []string{
		"WEIR_STORE=" + g.store.URL(), "WEIR_STORE_PASSWORD_FILE=" + g.file("store", g.password+"\n"), "WEIR_STORE_SECRET_FILE=" + g.file("slots", secret("slots")),
		"WEIR_HTTP_TOKEN_FILE=" + g.file("http", secret("http")), "WEIR_GRPC_TOKEN_FILE=" + g.file("grpc", secret("grpc")),
		"WEIR_RESP_PASSWORD_FILE=" + g.file("resp", secret("resp")), "WEIR_ADMIN_TOKEN_FILE=" + g.file("admin", secret("admin")),
		"WEIR_ADMIN=127.0.0.1:0", "WEIR_ADMIN_TLS_CERT=" + cert, "WEIR_ADMIN_TLS_KEY=" + key, "WEIR_GRPC_TLS_CERT=" + cert, "WEIR_GRPC_TLS_KEY=" + key,
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_EXPORTER_OTLP_HEADERS=authorization=" + secret("collector") + "," + secret("no-equals-sign"),
		"OTEL_BSP_SCHEDULE_DELAY=50",
	}, path, "serve", "--config", g.config, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--store-timeout", "1s", "--log-level", "debug")
	g.addrs = g.named("http", "grpc", "resp", "admin")
	g.silent("stdout", fmt.Sprint(g.addrs))
	return g
}

// askAll asks at every listener, as callers with the right secret, another one, and none.
func (g *guarded) askAll(when string) {
	g.vault.t.Helper()
	before := g.heard
	for _, said := range []string{"right", secret("another"), ""} {
		g.askHTTP(said)
		g.askGRPC(said)
		g.askRESP(said)
		g.askAdmin(said)
	}
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", g.Cmd.Process.Pid))
	g.silent("the process list", string(cmdline))
	g.silent("the log "+when, g.Stderr.String())
	if g.heard < before+100 {
		g.vault.t.Errorf("%s: only %d texts", when, g.heard-before)
	}
}

// credential is what a caller says at a listener: the listener's secret if it is to be right.
func credential(said, listener string) string {
	if said == "right" {
		return secret(listener)
	}
	return said
}

func (g *guarded) askHTTP(said string) {
	const take = `{"domain":"seeds","descriptors":[{"entries":[{"key":"window","value":"1"}]}]}`
	client := &http.Client{Timeout: patience}
	for _, call := range []struct{ method, target, body string }{
		{"GET", "/v1/auth?domain=seeds&window=1", ""},
		{"GET", "/v1/auth?domain=seeds&window=1&cost=x", ""},
		{"POST", "/v1/take", take},
		{"POST", "/v1/take", `{"domain":5}`},
		{"POST", "/v1/refund", take},
		{"POST", "/json", take},
		{"GET", "/metrics", ""},
		{"GET", "/rlconfig", ""},
		{"GET", "/readyz", ""},
		{"GET", "/healthz", ""},
		{"GET", "/healthcheck", ""},
		{"GET", "/openapi.json", ""},
		{"GET", "/nothing", ""},
	} {
		for _, scheme := range []string{"Bearer ", "Basic "} {
			r, err := http.NewRequest(call.method, "http://"+g.addrs["http"]+call.target, strings.NewReader(call.body))
			if err != nil {
				g.vault.t.Fatal(err)
			}
			token := credential(said, "http")
			if scheme == "Basic " {
				r.SetBasicAuth("user", token)
			} else if token != "" {
				r.Header.Set("Authorization", scheme+token)
			}
			if got := g.call(client, r); got != nil && said == "right" && got.StatusCode == http.StatusNoContent {
				g.granted.Store(true)
			}
		}
	}
}

func (g *guarded) askGRPC(said string) {
	conn, err := grpc.NewClient(g.addrs["grpc"], grpc.WithTransportCredentials(credentials.NewTLS(g.tls)))
	if err != nil {
		g.vault.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(g.vault.t.Context(), patience)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+credential(said, "grpc"))
	for _, domain := range []string{"seeds", ""} {
		answer, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: domain})
		g.silent("gRPC", fmt.Sprint(answer, err))
	}
}

// askRESP says everything at once and reads what is answered until the server hangs up.
func (g *guarded) askRESP(said string) {
	conn, err := net.Dial("tcp", g.addrs["resp"])
	if err != nil {
		g.silent("RESP", err.Error())
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	password := credential(said, "resp")
	for _, line := range []string{
		"PING", "CL.THROTTLE a 1 2 3", "AUTH " + secret("a-wrong-one"), "AUTH " + password + " " + password, "AUTH default " + password,
		"HELLO 3 AUTH default " + password, "AUTH " + password, "CL.THROTTLE a 1 2 3", "CL.THROTTLE", "INFO", "CONFIG GET *", "CLIENT LIST", "COMMAND", "EVAL x 0", "QUIT",
	} {
		fmt.Fprintf(conn, "%s\r\n", line)
	}
	answers, _ := io.ReadAll(conn)
	g.silent("RESP", string(answers))
}

// askAdmin asks as administrators' programs and browsers do.
func (g *guarded) askAdmin(said string) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		g.vault.t.Fatal(err)
	}
	browser := &http.Client{Timeout: patience, Jar: jar, Transport: &http.Transport{TLSClientConfig: g.tls, DisableKeepAlives: true}}
	base := "https://" + g.addrs["admin"]
	form := url.Values{"token": {credential(said, "admin")}}.Encode()
	for _, call := range []struct{ method, target, body, kind string }{
		{"POST", "/login", form, "application/x-www-form-urlencoded"},
		{"GET", "/", "", ""},
		{"GET", "/v1/rules", "", ""},
		{"GET", "/v1/key?domain=seeds&entry=window=1", "", ""},
		{"GET", "/v1/overrides", "", ""},
		{"POST", "/v1/key/block", `{"domain":"seeds","entries":[{"key":"window","value":"9"}],"for":"1m"}`, "application/json"},
		{"POST", "/v1/key/block", `{"domain":`, "application/json"},
		{"GET", "/metrics", "", ""},
		{"GET", "/readyz", "", ""},
		{"GET", "/debug/pprof/", "", ""},
		{"GET", "/debug/pprof/cmdline", "", ""},
		{"GET", "/debug/pprof/goroutine?debug=2", "", ""},
		{"GET", "/debug/pprof/heap?debug=1", "", ""},
		{"GET", "/debug/pprof/allocs", "", ""},
	} {
		for _, client := range []*http.Client{browser, {Timeout: patience, Transport: browser.Transport}} {
			r, err := http.NewRequest(call.method, base+call.target, strings.NewReader(call.body))
			if err != nil {
				g.vault.t.Fatal(err)
			}
			r.Header.Set("Content-Type", call.kind)
			if client != browser {
				r.Header.Set("Authorization", "Bearer "+credential(said, "admin"))
			}
			g.call(client, r)
		}
	}
}

// wrongStore makes the store ask for another password, of everybody.
func (g *guarded) wrongStore() {
	g.vault.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: g.store.Addr(), Password: g.password})
	defer client.Close()
	if err := client.ConfigSet(g.vault.t.Context(), "requirepass", secret("the-next")).Err(); err != nil {
		g.vault.t.Fatal(err)
	}
	_ = client.Do(g.vault.t.Context(), "client", "kill", "type", "normal").Err() // this connection may be among them
	_ = client.Do(g.vault.t.Context(), "client", "kill", "type", "pubsub").Err()
}

// wrongFiles makes every file wrong that is read again, and waits until that was
// noticed.
func (g *guarded) wrongFiles() {
	g.vault.t.Helper()
	for _, name := range []string{"store", "http", "grpc", "resp", "admin"} {
		g.file(name, secret("a b")+"\n"+secret("of-two-lines\x00")+"\n")
	}
	g.file("key.pem", "-----BEGIN PRIVATE KEY-----\n"+secret("no-key")+"\n-----END PRIVATE KEY-----\n")
	g.file("rules.yaml", "domain: seeds\ndescriptors: 5\n")
	_ = g.Cmd.Process.Signal(syscall.SIGHUP)
	for _, noticed := range []string{"a file with secrets is wrong", "the files for TLS are wrong", "rules"} {
		for deadline := time.Now().Add(patience); !strings.Contains(g.Stderr.String(), noticed); {
			if time.Now().After(deadline) {
				g.vault.t.Fatalf("nobody noticed: %s", noticed)
			}
			g.askHTTP(secret("another"))
			g.askAdmin("")
		}
	}
}

// TestNoSecretIsToldByAStart: the same of starts that fail, and of those whose store is
// nowhere, wherever the secret was written.
func TestNoSecretIsToldByAStart(t *testing.T) {
	t.Parallel()
	path, v := binary(t), newVault(t)
	password, short := secret("store"), v.file("short", mark)
	lines := v.file("lines", secret("one")+"\n"+secret("two")+" \n")
	cert, key, _ := v.pair()
	broken := v.file("broken.pem", "-----BEGIN PRIVATE KEY-----\n"+secret("key")+"\n-----END PRIVATE KEY-----\n")
	for name, c := range map[string]struct {
		env, args []string
		serves    bool
	}{
		"a URL in a variable":          {[]string{"WEIR_STORE=redis://u:" + password + "@127.0.0.1:1"}, nil, true},
		"a URL as an argument":         {nil, []string{"--store", "redis://u:" + password + "@127.0.0.1:1"}, true},
		"a cluster":                    {[]string{"WEIR_STORE=redis+cluster://u:" + password + "@127.0.0.1:1,127.0.0.1:2"}, nil, true},
		"sentinels":                    {[]string{"WEIR_STORE=redis+sentinel://u:" + password + "@m@127.0.0.1:1?sentinel_password=" + secret("sentinel")}, nil, true},
		"sentinels' file":              {[]string{"WEIR_STORE=redis+sentinel://u:" + password + "@m@127.0.0.1:1", "WEIR_STORE_SENTINEL_PASSWORD_FILE=" + v.file("sentinel", secret("sentinel"))}, nil, true},
		"envoyproxy's variables":       {[]string{"REDIS_URL=127.0.0.1:1", "REDIS_AUTH=u:" + password}, []string{"--http", "127.0.0.1:0", "--grpc", "off"}, true},
		"envoyproxy's sentinels":       {[]string{"REDIS_URL=m,127.0.0.1:1", "REDIS_TYPE=sentinel", "REDIS_AUTH=" + password, "REDIS_SENTINEL_AUTH=" + secret("sentinel")}, []string{"--http", "127.0.0.1:0", "--grpc", "off"}, true},
		"envoyproxy's, and no type":    {[]string{"REDIS_URL=redis://u:" + password + "@h", "REDIS_TYPE=ring", "REDIS_AUTH=" + password}, nil, false},
		"headers for a collector":      {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://u:" + password + "@127.0.0.1:1/%zz", "OTEL_EXPORTER_OTLP_HEADERS=a=%zz" + secret("h") + ",b " + secret("h")}, nil, true},
		"a slash in a password":        {[]string{"WEIR_STORE=redis+cluster://u:" + mark + "/pass@h:1"}, nil, false},
		"a slash after digits":         {[]string{"WEIR_STORE=redis://u:12/" + password + "@h:1"}, nil, false},
		"a question mark in it":        {[]string{"WEIR_STORE=redis://u:1?" + password + "@h:1"}, nil, false},
		"a percent sign in it":         {[]string{"WEIR_STORE=redis://u:%zz" + password + "@h:1"}, nil, false},
		"an ampersand for sentinels":   {[]string{"WEIR_STORE=redis+sentinel://m@h?sentinel_password=a&" + password}, nil, false},
		"no kind of a store":           {[]string{"WEIR_STORE=" + password}, nil, false},
		"a password for memory":        {[]string{"WEIR_STORE=memory:" + password}, nil, false},
		"two passwords":                {[]string{"WEIR_STORE=redis://:" + password + "@h", "WEIR_STORE_PASSWORD_FILE=" + short}, nil, false},
		"a password file of two lines": {[]string{"WEIR_STORE=redis://h", "WEIR_STORE_PASSWORD_FILE=" + lines}, nil, false},
		"a short token":                {[]string{"WEIR_HTTP_TOKEN_FILE=" + short}, nil, false},
		"a short admin token":          {[]string{"WEIR_ADMIN=127.0.0.1:0", "WEIR_ADMIN_TOKEN_FILE=" + short}, nil, false},
		"tokens with spaces":           {[]string{"WEIR_GRPC_TOKEN_FILE=" + v.file("spaces", secret("a b"))}, nil, false},
		"RESP's with spaces":           {[]string{"WEIR_RESP=127.0.0.1:0", "WEIR_RESP_PASSWORD_FILE=" + v.file("spaced", secret("a b"))}, nil, false},
		"a token for a digest":         {[]string{"WEIR_CALLERS=" + v.file("callers", "callers:\n  - {name: a, tokens: ["+secret("token")+"], verbs: [take], domains: [d]}\n")}, nil, false},
		"callers that are no YAML":     {[]string{"WEIR_CALLERS=" + v.file("no.yaml", "callers:\n\t- "+secret("token")+"\n")}, nil, false},
		"no key":                       {[]string{"WEIR_HTTP_TLS_CERT=" + cert, "WEIR_HTTP_TLS_KEY=" + broken}, nil, false},
		"a key for a certificate":      {[]string{"WEIR_HTTP_TLS_CERT=" + key, "WEIR_HTTP_TLS_KEY=" + key}, nil, false},
		"the store's key":              {[]string{"WEIR_STORE=rediss://h", "WEIR_STORE_TLS_CERT=" + cert, "WEIR_STORE_TLS_KEY=" + broken}, nil, false},
		"help":                         {[]string{"WEIR_STORE=redis://u:" + password + "@h", "REDIS_AUTH=" + password}, []string{"--help"}, false},
		"a flag that there is not":     {[]string{"WEIR_STORE=redis://u:" + password + "@h"}, []string{"--nothing"}, false},
	} {
		args := append([]string{"serve"}, c.args...)
		if len(c.args) < 4 {
			args = append(args, "--http", "127.0.0.1:0", "--grpc", "off", "--log-level", "debug", "--store-timeout", "1s")
		}
		p := start(t, c.env, path, args...)
		served := false
		for line := range p.Lines {
			v.silent(name+", stdout", line)
			if addr, found := strings.CutPrefix(line, "http "); found {
				served = true
				for _, target := range []string{"/readyz", "/metrics", "/v1/auth?domain=demo&user=1"} {
					r, err := http.NewRequest(http.MethodGet, "http://"+addr+target, nil)
					if err != nil {
						t.Fatal(err)
					}
					v.call(&http.Client{Timeout: patience}, r)
				}
				_ = p.Cmd.Process.Signal(syscall.SIGTERM)
			}
		}
		<-p.Exited
		v.silent(name+", stderr", p.Stderr.String())
		if served != c.serves {
			t.Errorf("%s: served %v\n%s", name, served, p.Stderr)
		}
	}
}

// TestNoSecretIsToldByCommands: the same of the other commands that are given some.
func TestNoSecretIsToldByCommands(t *testing.T) {
	t.Parallel()
	path, v := binary(t), newVault(t)
	token := v.file("token", secret("token"))
	target := "redis://u:" + secret("store") + "@127.0.0.1:1"
	rules := v.file("rules.yaml", "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	for _, args := range [][]string{
		{"check", rules},
		{"check", rules, "--explain", "d a=1"},
		{"key", "get", "d", "a=1", "--admin", "127.0.0.1:1", "--admin-token-file", token},
		{"key", "get", "d", "a=1", "--admin", "http://u:" + secret("admin") + "@127.0.0.1:1", "--admin-token-file", token},
		{"key", "get", "d", "a=1", "--admin", "http://u:" + secret("admin") + "/x@127.0.0.1:1"},
		{"bench", "--target", target, "--duration", "100ms", "--rate", "10"},
		{"bench", "--target", "redis://u:" + mark + "/x@127.0.0.1:1", "--duration", "100ms"},
		{"bench", "--target", "http://u:" + secret("x") + "@127.0.0.1:1"},
		{"bench", "--target", "http://127.0.0.1:1", "--token-file", token, "--duration", "100ms", "--rate", "10"},
		{"version"},
	} {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Env = append(os.Environ(), "WEIR_STORE="+target, "REDIS_AUTH="+secret("auth"))
		testserver.DieWithParent(cmd)
		out, err := cmd.CombinedOutput()
		v.silent(strings.Join(args[:1], " "), string(out))
		if err != nil && len(out) == 0 {
			t.Errorf("%v: %v and no word", args[0], err)
		}
	}
}
