package app

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/layer/override"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/server/internal/callers"
)

// callersFile returns a file of callers, each of whose tokens is its name with
// "-0123456789abcdef" behind it: what edge may do is for the test to say.
func callersFile(t *testing.T, verbs, domains string) string {
	t.Helper()
	one := func(name, verbs, domains string) string {
		sum := sha256.Sum256([]byte(tokenOf(name)))
		return fmt.Sprintf("  - {name: %s, tokens: [%s], certificates: [%s.internal], verbs: [%s], domains: [%s]}\n",
			name, hex.EncodeToString(sum[:]), name, verbs, domains)
	}
	return passwordFile(t, "callers:\n"+one("edge", verbs, domains)+one("watch", "admin-read", `"*"`))
}

func tokenOf(name string) string { return name + "-0123456789abcdef" }

const scopedRules = `domain: shop
descriptors:
  - {key: user, rate_limit: {algorithm: gcra, unit: hour, requests_per_unit: 1}}
`

const wire = `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"a"}]}]%s}`

// scoped is a server of scoped callers, as one of them sees it.
type scoped struct {
	t    *testing.T
	app  *App
	name string
}

func (s scoped) http(listener, method, path, body string) (int, string) {
	s.t.Helper()
	resp, text := send(s.t, s.app, listener, method, path, body, "Authorization: Bearer "+tokenOf(s.name))
	return resp.StatusCode, text
}

// rls asks for one descriptor: take, peek or refund.
func (s scoped) rls(verb, domain string) error {
	s.t.Helper()
	d := descriptor("user", "a")
	if verb == "peek" {
		d.HitsAddend = wrapperspb.UInt64(0)
	}
	d.IsNegativeHits = verb == "refund"
	_, err := rateLimit(bearer(s.t, tokenOf(s.name)), dialGRPC(s.t, s.app), domain, d)
	return err
}

func startScoped(t *testing.T, verbs, domains string) scoped {
	t.Helper()
	return scoped{t, start(t, Options{
		Config: rulesFor(t, scopedRules), Callers: callersFile(t, verbs, domains),
		RESP: "127.0.0.1:0", Admin: AdminOptions{Address: "127.0.0.1:0"},
	}), "edge"}
}

// TestScopedCallers: at every listener a caller may do what its file says, and what it
// may not names the verb and the domain.
func TestScopedCallers(t *testing.T) {
	t.Parallel()
	const settle = `{"domain":"shop","id":"x","cost":1,"descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`
	const change = `{"domain":"shop","entries":[{"key":"user","value":"a"}]}`
	calls := []struct {
		verb                         string
		listener, method, path, body string
	}{
		{"take", "http", "GET", "/v1/auth?domain=shop&user=a", ""},
		{"take", "http", "POST", "/v1/take", fmt.Sprintf(wire, "")},
		{"peek", "http", "POST", "/v1/take", fmt.Sprintf(wire, `,"cost":0`)},
		{"refund", "http", "POST", "/v1/refund", settle},
		{"settle", "http", "POST", "/v1/settle", settle},
		{"release", "http", "POST", "/v1/release", fmt.Sprintf(wire, `,"id":"x"`)},
		{"release", "http", "POST", "/v1/renew", fmt.Sprintf(wire, `,"id":"x","hold_ms":1000`)},
		{"take", "http", "POST", "/v1/take", fmt.Sprintf(ownLimit, "")},
		{"take", "http", "POST", "/v1/record", fmt.Sprintf(ownLimit, `,"cost":1`)},
		{"peek", "http", "POST", "/v1/take", fmt.Sprintf(ownLimit, `,"cost":0`)},
		{"refund", "http", "POST", "/v1/refund", fmt.Sprintf(ownLimit, `,"cost":1`)},
		{"refund", "http", "POST", "/v1/reset", fmt.Sprintf(ownLimit, "")},
		{"settle", "http", "POST", "/v1/settle", fmt.Sprintf(ownLimit, `,"id":"x","cost":1`)},
		{"release", "http", "POST", "/v1/release", fmt.Sprintf(ownLimit, `,"id":"x"`)},
		{"take", "http", "POST", "/json", fmt.Sprintf(wire, "")},
		{"admin-read", "admin", "GET", "/v1/key?domain=shop&entry=user=a", ""},
		{"admin-change", "admin", "POST", "/v1/key/reset", change},
		{"admin-change", "admin", "POST", "/v1/key/block", change},
	}
	for _, verb := range []string{"take", "refund", "settle", "release", "peek", "admin-read", "admin-change"} {
		for _, domain := range []string{"shop", "else"} {
			s := startScoped(t, verb, domain)
			for _, call := range calls {
				want := fmt.Sprintf(`caller "edge" may not %s in the domain "shop"`, call.verb)
				code, text := s.http(call.listener, call.method, call.path, call.body)
				text = strings.ReplaceAll(text, `\"`, `"`)
				allowed := verb == call.verb && domain == "shop"
				if forbidden := code == http.StatusForbidden && strings.Contains(text, want); forbidden == allowed {
					t.Errorf("%s in %s: %s %s: %d %s", verb, domain, call.method, call.path, code, text)
				}
			}
			for _, asked := range []string{"take", "peek", "refund"} {
				err := s.rls(asked, "shop")
				want := fmt.Sprintf(`caller "edge" may not %s in the domain "shop"`, asked)
				if forbidden := status.Code(err) == codes.PermissionDenied && status.Convert(err).Message() == want; forbidden == (verb == asked && domain == "shop") {
					t.Errorf("%s in %s: RLS, %s: %v", verb, domain, asked, err)
				}
			}
		}
	}
}

// TestScopedRedisClients: CL.THROTTLE is in a domain of its own.
func TestScopedRedisClients(t *testing.T) {
	t.Parallel()
	auth := "AUTH edge " + tokenOf("edge") + "\r\n"
	for name, test := range map[string]struct{ verbs, domains, commands, want string }{
		"take":          {"take", "cl.throttle", "CL.THROTTLE a 0 1 60\r\n", "+OK\r\n*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n+OK\r\n"},
		"peek":          {"peek", "cl.throttle", "CL.THROTTLE a 0 1 60 0\r\n", "+OK\r\n*5\r\n:0\r\n:1\r\n:1\r\n:-1\r\n:0\r\n+OK\r\n"},
		"peek, takes":   {"peek", "cl.throttle", "CL.THROTTLE a 0 1 60\r\n", "+OK\r\n-NOPERM caller \"edge\" may not take in the domain \"cl.throttle\"\r\n+OK\r\n"},
		"elsewhere":     {"take", "shop", "CL.THROTTLE a 0 1 60\r\n", "+OK\r\n-NOPERM caller \"edge\" may not take in the domain \"cl.throttle\"\r\n+OK\r\n"},
		"all, in order": {"take", `"*"`, "CL.THROTTLE a 0 1 60\r\nPING\r\n", "+OK\r\n*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n+PONG\r\n+OK\r\n"},
	} {
		if got := say(t, startScoped(t, test.verbs, test.domains).app, auth+test.commands); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// ownLimit is a body with a limit in the call.
const ownLimit = `{"domain":"shop","limits":[{"key":"k","limit":"9/s"}]%s}`

// TestScopedVerbs: each WEIR command needs its verb in its domain, and the verb suffices. A
// reset refunds everything.
func TestScopedVerbs(t *testing.T) {
	t.Parallel()
	commands := map[string]string{
		"WEIR.TAKE k 9/s": "take", "WEIR.RECORD k 9/s COST 1": "take", "WEIR.PEEK k 9/s": "peek", "WEIR.TAKE k 9/s COST 0": "peek",
		"WEIR.REFUND k 9/s COST 1": "refund", "WEIR.RESET k 9/s": "refund", "WEIR.SETTLE k 9/s COST 1 ID a": "settle",
		"WEIR.RELEASE k 9/s ID a": "release", "WEIR.RENEW k 9/s ID a": "release",
	}
	for _, verb := range []string{"take", "refund", "settle", "release", "peek"} {
		for _, domain := range []string{"shop", "default"} {
			app := startScoped(t, verb, domain).app
			for command, needs := range commands {
				for asked, in := range map[string]string{"default": "", "shop": " IN shop"} {
					got := say(t, app, "AUTH edge "+tokenOf("edge")+"\r\n"+command+in+"\r\n")
					want := fmt.Sprintf("+OK\r\n-NOPERM caller \"edge\" may not %s in the domain %q\r\n+OK\r\n", needs, asked)
					if (got == want) == (verb == needs && domain == asked) {
						t.Errorf("%s in %s: %s%s: %q", verb, domain, command, in, got)
					}
				}
			}
		}
	}
}

// TestForbiddenCostsNothing: what a caller may not do charges nothing and changes nothing.
func TestForbiddenCostsNothing(t *testing.T) {
	t.Parallel()
	s := startScoped(t, "take, peek", "other")
	for range 5 {
		s.http("http", "POST", "/v1/take", fmt.Sprintf(wire, ""))
		s.http("http", "GET", "/v1/auth?domain=shop&user=a", "")
		s.http("admin", "POST", "/v1/key/block", `{"domain":"shop","entries":[{"key":"user","value":"a"}]}`)
		if err := s.rls("take", "shop"); status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
	}
	watch := s
	watch.name = "watch"
	if code, text := watch.http("admin", "GET", "/v1/key?domain=shop&entry=user=a", ""); code != http.StatusOK || !strings.Contains(text, `"used": 0`) || strings.Contains(text, "blocked\": true") {
		t.Errorf("%d %s", code, text)
	}
	_, text := watch.http("http", "GET", "/metrics", "")
	for _, want := range []string{
		`caller="edge",listener="http",outcome="forbidden"} 10`, `caller="edge",listener="grpc",outcome="forbidden"} 5`,
		`caller="edge",listener="admin",outcome="forbidden"} 5`, `caller="watch",listener="admin",outcome="admitted"} 1`,
	} {
		if !strings.Contains(text, "weir_caller_requests_total{"+want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestScopedAdministratorsLeaveRoom: a caller for one domain cannot use up the overrides of all.
func TestScopedAdministratorsLeaveRoom(t *testing.T) {
	t.Parallel()
	s := startScoped(t, "admin-change", "shop")
	list := make([]override.Override, 5000)
	for i := range list {
		list[i] = override.Override{Key: fmt.Sprintf("shop/user=%d", i), Until: time.Now().Add(time.Hour)}
	}
	list[0].Key = "other/user=a"
	s.app.engine.Override.Replace(list)
	block := func(name, user string) (int, string) {
		who := s
		who.name = name
		return who.http("admin", "POST", "/v1/key/block", `{"domain":"shop","for":"1h","entries":[{"key":"user","value":"`+user+`"}]}`)
	}
	if code, text := block("edge", "one"); code != http.StatusOK {
		t.Errorf("the last one of its share: %d %s", code, text)
	}
	if code, text := block("edge", "two"); code != http.StatusConflict || !strings.Contains(text, "at most 5000 at a time in the domains of one caller") {
		t.Errorf("one more than its share: %d %s", code, text)
	}
	if code, text := block("edge", "one"); code != http.StatusOK {
		t.Errorf("the same one again: %d %s", code, text)
	}
}

// TestScopedAdministrators: what is about every domain is for who may read every one.
func TestScopedAdministrators(t *testing.T) {
	t.Parallel()
	s := startScoped(t, "admin-read, admin-change", "shop")
	watch := s
	watch.name = "watch"
	for _, call := range []struct{ listener, path string }{
		{"admin", "/v1/rules"},
		{"admin", "/v1/overrides"},
		{"admin", "/metrics"},
		{"admin", "/readyz"},
		{"admin", "/debug/pprof/"},
		{"admin", "/debug/pprof/cmdline"},
		{"admin", "/"},
		{"admin", "/dashboard/rules"},
		{"http", "/metrics"},
		{"http", "/rlconfig"},
	} {
		if code, text := s.http(call.listener, "GET", call.path, ""); code != http.StatusForbidden || !strings.Contains(text, "may not admin-read in every domain") {
			t.Errorf("%s: %d %s", call.path, code, text)
		}
		if code, text := watch.http(call.listener, "GET", call.path, ""); code != http.StatusOK {
			t.Errorf("%s, who may: %d %s", call.path, code, text)
		}
	}
	if code, text := watch.http("admin", "POST", "/v1/key/block", `{"domain":"shop","entries":[{"key":"user","value":"a"}]}`); code != http.StatusForbidden {
		t.Errorf("who may read changes: %d %s", code, text)
	}
	if code, _ := s.http("admin", "GET", "/healthz", ""); code != http.StatusOK {
		t.Errorf("healthz: %d", code)
	}
}

// TestScopedAudit: the log names the caller that changed a key.
func TestScopedAudit(t *testing.T) {
	t.Parallel()
	var log lines
	s := scoped{t, start(t, Options{
		Config: rulesFor(t, scopedRules), Callers: callersFile(t, "admin-change", "shop"), Admin: AdminOptions{Address: "127.0.0.1:0"},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}), "edge"}
	s.http("admin", "POST", "/v1/key/block", `{"domain":"shop","entries":[{"key":"user","value":"a"}]}`)
	if said := log.String(); !strings.Contains(said, `by="caller edge"`) || strings.Contains(said, tokenOf("edge")) {
		t.Errorf("logged: %s", said)
	}
}

// TestCallersAndTokens: a token of a plain file may do everything beside scoped callers,
// and nobody else is let in, on loopback neither.
func TestCallersAndTokens(t *testing.T) {
	t.Parallel()
	file := callersFile(t, "peek", "shop")
	app := start(t, Options{Config: rulesFor(t, scopedRules), Callers: file, HTTPTokenFile: passwordFile(t, tokenOf("root"))})
	for name, want := range map[string]int{"root": http.StatusNoContent, "edge": http.StatusForbidden, "nobody": http.StatusUnauthorized} {
		if code, text := (scoped{t, app, name}).http("http", "GET", "/v1/auth?domain=shop&user="+name, ""); code != want {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	wantRPC(t, app, "", codes.Unauthenticated)
	var problems callers.FileError
	if _, err := New(Options{Callers: passwordFile(t, "callers:\n  - {name: a}\n")}); !errors.As(err, &problems) || problems[0].Line != 2 {
		t.Errorf("a wrong file: %v", err)
	}
}

// TestScopedCertificates: a client's certificate is as good as a token, at each listener
// that asks for one.
func TestScopedCertificates(t *testing.T) {
	t.Parallel()
	authority := newIssuer(t)
	cert, key := authority.pair("weir.test")
	secured := TLS{Cert: cert, Key: key, ClientCA: authority.file}
	app := start(t, Options{
		Config: rulesFor(t, scopedRules), Callers: callersFile(t, "take", `"*"`),
		HTTPTLS: secured, GRPCTLS: secured, RESP: "127.0.0.1:0", RESPTLS: secured,
		Admin: AdminOptions{Address: "127.0.0.1:0", TLS: secured},
	})
	for name, known := range map[string]bool{"edge.internal": true, "stranger.internal": false} {
		config := authority.client(name)
		for path, want := range map[string]int{"/v1/auth?domain=shop&user=" + name: http.StatusNoContent, "/metrics": http.StatusForbidden} {
			if !known {
				want = http.StatusUnauthorized
			}
			if resp, text := sendTo(t, config, "GET", "https://"+addrOf(app, "http")+path, ""); resp.StatusCode != want {
				t.Errorf("%s: %s: %d %s", name, path, resp.StatusCode, text)
			}
		}
		conn, err := grpc.NewClient(addrOf(app, "grpc"), grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = rateLimit(t.Context(), conn, "shop", descriptor("user", "b"))
		if (status.Code(err) == codes.OK) != known {
			t.Errorf("%s: RLS: %v", name, err)
		}
		redis, err := tls.Dial("tcp", addrOf(app, "resp"), config)
		if err != nil {
			t.Fatal(err)
		}
		defer redis.Close()
		fmt.Fprint(redis, "CL.THROTTLE a 5 1 60\r\nRESET\r\nCL.THROTTLE a 5 1 60\r\nQUIT\r\n")
		text, err := io.ReadAll(redis)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "*5\r\n"); n != 2 && known || strings.Count(string(text), "NOAUTH") != 2 && !known {
			t.Errorf("%s: RESP: %q", name, text)
		}
	}
}

// TestAccessDocs: the file of docs/access.md gives the caller whose token stands there the
// rights that it says.
func TestAccessDocs(t *testing.T) {
	t.Parallel()
	var file, digest, token string
	for _, b := range pages.Mine(t, "docs/access.md") {
		switch b.Language {
		case "yaml":
			file = passwordFile(t, b.Text)
		case "sh":
			token = strings.Fields(b.Text)[2]
			sum := sha256.Sum256([]byte(token))
			digest = hex.EncodeToString(sum[:])
		}
	}
	app := start(t, Options{Config: rulesFor(t, strings.Replace(scopedRules, "shop", "edge", 1)), Callers: file})
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), digest) {
		t.Fatalf("the file has no %s: %v", digest, err)
	}
	for path, want := range map[string]string{
		"/v1/auth?domain=edge&user=a": "204 ", "/v1/auth?domain=web&user=a": `403 caller "edge-envoy" may not take in the domain "web"`,
		"/metrics": `403 caller "edge-envoy" may not admin-read in every domain`,
	} {
		code, body := get(t, app, path, "Authorization: Bearer "+token)
		var problem struct{ Detail, Code string }
		if body != "" {
			if err := json.Unmarshal([]byte(body), &problem); err != nil || problem.Code != "forbidden" {
				t.Errorf("%s: %s, %v", path, body, err)
			}
		}
		if got := fmt.Sprint(code, " ", problem.Detail); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
