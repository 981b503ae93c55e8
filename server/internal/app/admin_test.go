package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testserver"
)

// addrOf is where an app serves a protocol, nowhere if it does not.
func addrOf(app *App, protocol string) string {
	for _, addr := range app.Addrs() {
		if addr.Protocol == protocol {
			return addr.Address
		}
	}
	return ""
}

// send makes a call on a connection of its own.
func send(t *testing.T, client *http.Client, req *http.Request) (int, string) {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func plain() *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
}

// post changes a key of an app.
func post(t *testing.T, app *App, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+addrOf(app, "admin")+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return send(t, plain(), req)
}

// auth asks an app about a user of the domain demo.
func auth(t *testing.T, app *App, user string) int {
	t.Helper()
	status, _ := get(t, app, "/v1/auth?domain=demo&user="+user)
	return status
}

const alice = `"domain":"demo","entries":[{"key":"user","value":"alice"}]`

func TestAdminIsOffUnlessAskedFor(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", Off} {
		if app := start(t, Options{Admin: AdminOptions{Address: address}}); addrOf(app, "admin") != "" {
			t.Errorf("serves at %v", app.Addrs())
		}
	}
}

// TestAdminChangesHoldEverywhere: at all front-ends of the process.
func TestAdminChangesHoldEverywhere(t *testing.T) {
	t.Parallel()
	app := start(t, Options{RESP: "127.0.0.1:0", Admin: AdminOptions{Address: "127.0.0.1:0"}})
	rls := `{"domain":"demo","descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}`
	json := func() string {
		t.Helper()
		resp, err := plain().Post("http://"+addrOf(app, "http")+"/json", "application/json", strings.NewReader(rls))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}
	if got := auth(t, app, "alice"); got != http.StatusNoContent {
		t.Fatalf("before: %d", got)
	}
	if status, body := post(t, app, "/v1/key/block", `{`+alice+`}`); status != http.StatusOK {
		t.Fatalf("block: %d %s", status, body)
	}
	if got, body := auth(t, app, "alice"), json(); got != http.StatusTooManyRequests || !strings.Contains(body, "OVER_LIMIT") {
		t.Errorf("blocked: %d, %s", got, body)
	}
	if got := auth(t, app, "bob"); got != http.StatusNoContent {
		t.Errorf("somebody else: %d", got)
	}
	if status, body := post(t, app, "/v1/key/override", `{`+alice+`,"limit":"70/min burst 30"}`); status != http.StatusOK {
		t.Fatalf("override: %d %s", status, body)
	}
	if body := json(); !strings.Contains(body, `"requestsPerUnit":70`) || !strings.Contains(body, `"limitRemaining":28`) {
		t.Errorf("overridden: %s", body)
	}
	if status, body := post(t, app, "/v1/key/allow", `{`+alice+`}`); status != http.StatusOK {
		t.Fatalf("allow: %d %s", status, body)
	}
	for range 20 {
		if got := auth(t, app, "alice"); got != http.StatusNoContent {
			t.Fatalf("allowed: %d", got)
		}
	}
	throttled := `{"domain":"cl.throttle","entries":[{"key":"key","value":"k"}]`
	if status, body := post(t, app, "/v1/key/override", throttled+`,"limit":"1/min burst 3"}`); status != http.StatusOK {
		t.Fatalf("override of CL.THROTTLE: %d %s", status, body)
	}
	if got := say(t, app, "CL.THROTTLE k 0 1 60\r\n"); !strings.HasPrefix(got, "*5\r\n:0\r\n:3\r\n:2\r\n") {
		t.Errorf("CL.THROTTLE: %q", got)
	}
	if status, body := post(t, app, "/v1/key/block", throttled+`}`); status != http.StatusOK {
		t.Fatalf("block of CL.THROTTLE: %d %s", status, body)
	}
	if got := say(t, app, "CL.THROTTLE k 9 1 60\r\n"); !strings.HasPrefix(got, "*5\r\n:1\r\n") {
		t.Errorf("CL.THROTTLE: %q", got)
	}
}

// TestAdminOverridesSurviveAReload, also one that gives the rule another name and
// another algorithm.
func TestAdminOverridesSurviveAReload(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(limit string) {
		t.Helper()
		text := "domain: demo\ndescriptors:\n  - {key: user, rate_limit: " + limit + "}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{name: a, requests_per_unit: 5, unit: hour}")
	app := start(t, Options{Config: file, Admin: AdminOptions{Address: "127.0.0.1:0"}})
	rules := func() string {
		resp, err := plain().Get("http://" + addrOf(app, "admin") + "/v1/rules")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}
	until := func(text string) {
		t.Helper()
		app.Reload()
		for deadline := time.Now().Add(20 * time.Second); !strings.Contains(rules(), text); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("never told %s: %s", text, rules())
			}
		}
	}
	before := rules()
	if status, body := post(t, app, "/v1/key/block", `{`+alice+`}`); status != http.StatusOK {
		t.Fatalf("block: %d %s", status, body)
	}
	write("{name: b, requests_per_unit: 6, unit: hour}")
	until(`"name": "b"`)
	if got := auth(t, app, "alice"); got != http.StatusTooManyRequests {
		t.Errorf("after the reload: %d", got)
	}
	if before == rules() || strings.Contains(rules(), "reload_error") {
		t.Errorf("told of the reload: %s", rules())
	}
	write("{requests_per_unit: six, unit: hour}")
	until(`"reload_error"`)
}

// TestAdminSpreads makes a change on one instance that another one knows, and one
// that comes later.
func TestAdminSpreads(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	options := Options{Store: server.URL(), Admin: AdminOptions{Address: "127.0.0.1:0"}}
	one, other := start(t, options), start(t, options)
	if status, body := post(t, one, "/v1/key/block", `{`+alice+`}`); status != http.StatusOK || !strings.Contains(body, `"spread": "all"`) {
		t.Fatalf("block: %d %s", status, body)
	}
	refuses := func(app *App, want int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); auth(t, app, "alice") != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("never answered %d", want)
			}
		}
	}
	refuses(other, http.StatusTooManyRequests)
	refuses(start(t, options), http.StatusTooManyRequests)
	if status, body := post(t, other, "/v1/key/clear", `{`+alice+`}`); status != http.StatusOK {
		t.Fatalf("clear: %d %s", status, body)
	}
	refuses(one, http.StatusNoContent)
	server.Kill()
	if status, body := post(t, one, "/v1/key/block", `{`+alice+`}`); status != http.StatusOK || !strings.Contains(body, `"spread": "pending"`) {
		t.Errorf("with Redis away: %d %s", status, body)
	}
	// A block needs no store.
	refuses(one, http.StatusTooManyRequests)
	if status, body := post(t, one, "/v1/key/reset", `{`+alice+`}`); status != http.StatusServiceUnavailable {
		t.Errorf("reset with Redis away: %d %s", status, body)
	}
}

func TestAdminIsRefused(t *testing.T) {
	t.Parallel()
	token := passwordFile(t, "a-token-of-some-length\n")
	authority := newIssuer(t)
	cert, key := authority.pair("weir.test")
	for name, test := range map[string]struct {
		field   string
		options AdminOptions
	}{
		"no address":      {"admin", AdminOptions{Address: "on"}},
		"everywhere":      {"admin", AdminOptions{Address: ":0"}},
		"all of IPv4":     {"admin", AdminOptions{Address: "0.0.0.0:0"}},
		"some name":       {"admin", AdminOptions{Address: "localhost.example.com:0"}},
		"only encrypted":  {"admin", AdminOptions{Address: "0.0.0.0:0", TLS: TLS{Cert: cert, Key: key}}},
		"key missing":     {"admin tls key", AdminOptions{Address: "0.0.0.0:0", TokenFile: token, TLS: TLS{Cert: cert}}},
		"in the clear":    {"admin tls cert", AdminOptions{Address: "0.0.0.0:0", TLS: TLS{ClientCA: authority.file}}},
		"no certificates": {"admin tls client ca", AdminOptions{Address: "0.0.0.0:0", TLS: TLS{Cert: cert, Key: key, ClientCA: key}}},
		"short token":     {"admin token file", AdminOptions{Address: "127.0.0.1:0", TokenFile: passwordFile(t, "short\n")}},
		"no token":        {"admin token file", AdminOptions{Address: "127.0.0.1:0", TokenFile: passwordFile(t, "\n")}},
	} {
		_, err := New(Options{Admin: test.options})
		invalid := new(weir.InvalidError)
		if !errors.As(err, &invalid) || invalid.Field != test.field {
			t.Errorf("%s: got %v, want an error that names %s", name, err, test.field)
		}
	}
	for _, o := range []AdminOptions{
		{Address: "0.0.0.0:0", TLS: TLS{Cert: cert, Key: key, ClientCA: authority.file}},
		{Address: "[::1]:0"},
		{Address: "localhost:0", TokenFile: token, TLS: TLS{Cert: cert, Key: key}},
	} {
		if _, err := New(Options{Admin: o}); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	missing := filepath.Join(t.TempDir(), "none")
	for _, o := range []AdminOptions{
		{Address: "127.0.0.1:0", TokenFile: missing},
		{Address: "127.0.0.1:0", TLS: TLS{Cert: missing, Key: key}},
		{Address: "127.0.0.1:0", TLS: TLS{Cert: cert, Key: key, ClientCA: missing}},
	} {
		if _, err := New(Options{Admin: o}); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestAdminAsksForTheToken, and for another one once the file has changed.
func TestAdminAsksForTheToken(t *testing.T) {
	t.Parallel()
	const token, next = "a-token-of-some-length", "another-token-of-some-length"
	file := passwordFile(t, token+"\n")
	app := start(t, Options{Admin: AdminOptions{Address: "127.0.0.1:0", TokenFile: file}})
	asked := func(path, header string) (int, string) {
		req, err := http.NewRequest(http.MethodGet, "http://"+addrOf(app, "admin")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			req.Header.Set("Authorization", header)
		}
		return send(t, plain(), req)
	}
	for header, want := range map[string]int{
		"": 401, "Bearer " + token: 200, "bearer " + token: 200, "Bearer " + token + "x": 401, "Bearer": 401, "Basic " + token: 401, token: 401,
	} {
		for _, path := range []string{"/v1/rules", "/readyz", "/debug/pprof/"} {
			if status, body := asked(path, header); status != want {
				t.Errorf("%q at %s: %d %s, want %d", header, path, status, body, want)
			}
		}
	}
	if resp, err := plain().Get("http://" + addrOf(app, "admin") + "/healthz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("healthz: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	replace(t, file, next+"\n")
	eventually(t, func() error {
		was, _ := asked("/v1/rules", "Bearer "+token)
		is, _ := asked("/v1/rules", "Bearer "+next)
		if was != http.StatusUnauthorized || is != http.StatusOK {
			return fmt.Errorf("%d with the token that was replaced, %d with the next", was, is)
		}
		return nil
	})
}

// TestAdminAsksForACertificate, and names its holder in the log.
func TestAdminAsksForACertificate(t *testing.T) {
	t.Parallel()
	authority, stranger := newIssuer(t), newIssuer(t)
	cert, key := authority.pair("weir.test")
	var log lines
	app := start(t, Options{
		Admin:  AdminOptions{Address: "127.0.0.1:0", TLS: TLS{Cert: cert, Key: key, ClientCA: authority.file}},
		Logger: slog.New(slog.NewJSONHandler(&log, nil)),
	})
	// client returns a client with a certificate by an authority, or without one.
	client := func(by *issuer) *http.Client {
		config := authority.client("")
		if by != nil {
			config.Certificates = by.client("operator.test").Certificates
		}
		return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	}
	url := "https://" + addrOf(app, "admin") + "/v1/key/reset"
	for name, by := range map[string]*issuer{"none": nil, "a stranger's": stranger} {
		if resp, err := client(by).Post(url, "application/json", strings.NewReader(`{`+alice+`}`)); err == nil {
			resp.Body.Close()
			t.Errorf("%s certificate: %s", name, resp.Status)
		}
	}
	resp, err := client(authority).Post(url, "application/json", strings.NewReader(`{`+alice+`}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("reset: %s", resp.Status)
	}
	if !strings.Contains(log.String(), `"by":"certificate CN=operator.test"`) || strings.Contains(log.String(), "alice") {
		t.Errorf("logged %s", log.String())
	}
}

// TestAdminStopsAProfile: nobody waits for one when the server stops.
func TestAdminStopsAProfile(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Admin: AdminOptions{Address: "127.0.0.1:0"}})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for status := 0; status != http.StatusOK; { // one of those below may be first
			resp, err := plain().Get("http://" + addrOf(app, "admin") + "/debug/pprof/trace?seconds=9")
			if err != nil {
				return
			}
			status = resp.StatusCode
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	// While it is being made, a second one is refused.
	for {
		resp, err := plain().Get("http://" + addrOf(app, "admin") + "/debug/pprof/trace?seconds=0.001")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			break
		}
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := app.Stop(ctx); err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("stopped after %v: %v", time.Since(began), err)
	}
	<-answered
}
