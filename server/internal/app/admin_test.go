package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// auth asks an app about a user of the domain demo.
func auth(t *testing.T, app *App, user string) int {
	t.Helper()
	status, _ := get(t, app, "/v1/auth?domain=demo&user="+user)
	return status
}

const alice = `"domain":"demo","entries":[{"key":"user","value":"alice"}]`

// TestAdminChangesHoldEverywhere: at all front-ends of the process.
func TestAdminChangesHoldEverywhere(t *testing.T) {
	t.Parallel()
	app := start(t, Options{RESP: "127.0.0.1:0", Admin: AdminOptions{Address: "127.0.0.1:0"}})
	json := func() string {
		t.Helper()
		_, text := posted(t, app, "/json", `{"domain":"demo","descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}`)
		return text
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
	limited := func(limit string) string {
		return "domain: demo\ndescriptors:\n  - {key: user, rate_limit: " + limit + "}\n"
	}
	file := rulesFor(t, limited("{name: a, requests_per_unit: 5, unit: hour}"))
	app := start(t, Options{Config: file, Admin: AdminOptions{Address: "127.0.0.1:0"}})
	rules := func() string {
		_, text := send(t, app, "admin", "GET", "/v1/rules", "")
		return text
	}
	until := func(text string) {
		t.Helper()
		app.Reload()
		testserver.Eventually(t, "rules with "+text, func() bool { return strings.Contains(rules(), text) })
	}
	before := rules()
	if status, body := post(t, app, "/v1/key/block", `{`+alice+`}`); status != http.StatusOK {
		t.Fatalf("block: %d %s", status, body)
	}
	replace(t, file, limited("{name: b, requests_per_unit: 6, unit: hour}"))
	until(`"name": "b"`)
	if got := auth(t, app, "alice"); got != http.StatusTooManyRequests {
		t.Errorf("after the reload: %d", got)
	}
	if before == rules() || strings.Contains(rules(), "reload_error") {
		t.Errorf("told of the reload: %s", rules())
	}
	replace(t, file, limited("{requests_per_unit: six, unit: hour}"))
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
		testserver.Eventually(t, fmt.Sprint("answered ", want), func() bool { return auth(t, app, "alice") == want })
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
	token, missing := passwordFile(t, "a-token-of-some-length\n"), filepath.Join(t.TempDir(), "none")
	authority := newIssuer(t)
	cert, key := authority.pair("weir.test")
	for name, test := range map[string]struct {
		field, text string
		options     AdminOptions
	}{
		"no address":      {"admin", "", AdminOptions{Address: "on"}},
		"everywhere":      {"admin", "", AdminOptions{Address: ":0"}},
		"all of IPv4":     {"admin", "", AdminOptions{Address: "0.0.0.0:0"}},
		"some name":       {"admin", "", AdminOptions{Address: "localhost.example.com:0"}},
		"only encrypted":  {"admin", "", AdminOptions{Address: "0.0.0.0:0", TLS: TLS{Cert: cert, Key: key}}},
		"key missing":     {"admin tls key", "", AdminOptions{Address: "0.0.0.0:0", TokenFile: token, TLS: TLS{Cert: cert}}},
		"in the clear":    {"admin tls cert", "", AdminOptions{Address: "0.0.0.0:0", TLS: TLS{ClientCA: authority.file}}},
		"no certificates": {"admin tls client ca", "", AdminOptions{Address: "0.0.0.0:0", TLS: TLS{Cert: cert, Key: key, ClientCA: key}}},
		"short token":     {"admin token file", "", AdminOptions{Address: "127.0.0.1:0", TokenFile: passwordFile(t, "short\n")}},
		"no token":        {"admin token file", "", AdminOptions{Address: "127.0.0.1:0", TokenFile: passwordFile(t, "\n")}},
		"no cert file":    {"admin tls cert", "no such file", AdminOptions{Address: "127.0.0.1:0", TLS: TLS{Cert: missing, Key: key}}},
		"no CA file":      {"admin tls client ca", "no such file", AdminOptions{Address: "127.0.0.1:0", TLS: TLS{Cert: cert, Key: key, ClientCA: missing}}},
	} {
		wantInvalid(t, name, Options{Admin: test.options}, test.field, test.text)
	}
	if _, err := New(Options{Admin: AdminOptions{Address: "127.0.0.1:0", TokenFile: missing}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no token file: %v", err)
	}
	for _, o := range []AdminOptions{
		{Address: "0.0.0.0:0", TLS: TLS{Cert: cert, Key: key, ClientCA: authority.file}},
		{Address: "[::1]:0"},
		{Address: "localhost:0", TokenFile: token, TLS: TLS{Cert: cert, Key: key}},
	} {
		wantGood(t, o.Address, Options{Admin: o})
	}
}

// TestAdminAsksForTheToken, and for another one once the file has changed.
func TestAdminAsksForTheToken(t *testing.T) {
	t.Parallel()
	const token, next = "a-token-of-some-length", "another-token-of-some-length"
	file := passwordFile(t, token+"\n")
	app := start(t, Options{Admin: AdminOptions{Address: "127.0.0.1:0", TokenFile: file}})
	asked := func(path, header string) (int, string) {
		resp, text := send(t, app, "admin", "GET", path, "", "Authorization: "+header)
		return resp.StatusCode, text
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
	if status, text := asked("/healthz", ""); status != http.StatusOK {
		t.Errorf("healthz: %d %s", status, text)
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
	url := "https://" + addrOf(app, "admin") + "/v1/key/reset"
	config := authority.client("")
	for name, certificates := range map[string][]tls.Certificate{"none": nil, "a stranger's": stranger.client("operator.test").Certificates} {
		config.Certificates = certificates
		if conn, err := tls.Dial("tcp", addrOf(app, "admin"), config); err == nil {
			_, err = conn.Read(make([]byte, 1)) // TLS 1.3 refuses after the client's part
			conn.Close()
			if err == nil || errors.Is(err, io.EOF) {
				t.Errorf("%s certificate: %v", name, err)
			}
		}
	}
	if resp, _ := sendTo(t, authority.client("operator.test"), "POST", url, `{`+alice+`}`); resp.StatusCode != http.StatusOK {
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
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		for status := 0; status != http.StatusOK; { // one of those below may be first
			resp, err := client.Get("http://" + addrOf(app, "admin") + "/debug/pprof/trace?seconds=9")
			if err != nil {
				return
			}
			status = resp.StatusCode
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	// While it is being made, a second one is refused.
	for status := http.StatusOK; status == http.StatusOK; {
		resp, _ := send(t, app, "admin", "GET", "/debug/pprof/trace?seconds=0.001", "")
		status = resp.StatusCode
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := app.Stop(ctx); err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("stopped after %v: %v", time.Since(began), err)
	}
	<-answered
}

// TestAdminChangesLimitsInCalls wants changes of a key to win over what programs and the
// file say, under the names that answers have.
func TestAdminChangesLimitsInCalls(t *testing.T) {
	t.Parallel()
	app := start(t, Options{
		Config: rulesFor(t, "domain: shop\ncalls: {names: {login: {requests_per_unit: 5, unit: minute, algorithm: sliding_log}}}\n"),
		RESP:   "127.0.0.1:0", Admin: AdminOptions{Address: "127.0.0.1:0"},
	})
	change := func(action, domain, name, limit string) {
		t.Helper()
		body := `{"domain":"` + domain + `","entries":[{"key":"call","value":"user:42"}],"name":"` + name + `"` + limit + `}`
		if code, text := post(t, app, "/v1/key/"+action, body); code != http.StatusOK {
			t.Errorf("%s %s: %d %s", action, name, code, text)
		}
	}
	take := func(limit, want string) {
		t.Helper()
		command := []string{"WEIR.TAKE", "user:42", limit, "IN", "shop"}
		text := "*5\r\n"
		for _, arg := range command {
			text += "$" + strconv.Itoa(len(arg)) + "\r\n" + arg + "\r\n"
		}
		fields := strings.Fields(strings.ReplaceAll(say(t, app, text), ":", ""))
		if got := fields[1] + " of " + fields[9]; got != want {
			t.Errorf("%s: %s, want %s", limit, got, want)
		}
	}
	take("login=100/s", "1 of 5")
	change("override", "shop", "login", `,"limit":"1/h"`)
	take("login=100/s", "0 of 1")
	change("clear", "shop", "login", "")
	take("login=100/s", "1 of 5")
	change("override", "shop", "search", `,"limit":"2/h"`)
	take("search=100/s", "1 of 2")
	change("override", "shop", "fixed_window#search", `,"limit":"3/h"`)
	take("search=100/s fixed_window", "1 of 3")
	change("override", "shop", "gcra/1m0s", `,"limit":"4/h"`)
	take("9/min", "1 of 4")
	change("block", "shop", "fixed_window/24h0m0s/Europe/Paris", "")
	take("9/day fixed_window time_zone Europe/Paris", "0 of 0")
	change("block", "shop", "fixed_window/720h0m0s/UTC/3", "")
	take("9/month fixed_window time_zone UTC anchor_day 3", "0 of 0")
	take("1/h", "1 of 1")
	take("1/h", "0 of 1")
	change("reset", "shop", "gcra/1h0m0s", "")
	take("1/h", "1 of 1")
	for path, want := range map[string]string{
		"/v1/key?domain=shop&entry=call=user:42&name=login":          `"on_store_failure": "local"`,
		"/v1/key?domain=elsewhere&entry=call=user:42&name=x":         "a limit in calls: its numbers come with each call",
		"/v1/key?domain=shop&entry=call=user:42":                     "name is missing",
		"/v1/key?domain=shop&entry=call=user:42&name=gcra/fortnight": `name is \"gcra/fortnight\": want the name of a limit in calls`,
	} {
		if _, text := send(t, app, "admin", http.MethodGet, path, ""); !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", path, text, want)
		}
	}
}
