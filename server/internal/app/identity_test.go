package app

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

const peopleRules = `domain: llm
descriptors:
  - {key: user, rate_limit: {name: user, requests_per_unit: 2, unit: day, algorithm: fixed_window}}
  - {key: key, value: edge, rate_limit: {requests_per_unit: 9, unit: day, algorithm: fixed_window}}
`

// TestIdentityHeader wants people limited whom a trusted proxy names, by its certificate, and
// nobody else believed. The headers and the credential do not go on.
func TestIdentityHeader(t *testing.T) {
	t.Parallel()
	authority, upstream := newIssuer(t), newProvider(t)
	cert, key := authority.pair("weir.test")
	app := start(t, Options{
		Config: rulesFor(t, peopleRules), Callers: callersFile(t, "take", "llm"),
		Models: ModelOptions{
			Address: "127.0.0.1:0", Upstream: upstream.URL, UpstreamKeyFile: passwordFile(t, providerKey),
			TLS:            TLS{Cert: cert, Key: key, ClientCA: authority.file},
			IdentityHeader: "user=X-User", IdentityFrom: "Gateway.internal",
		},
	})
	for _, call := range []struct {
		from, header, value string
		status              int
		text                string
	}{
		{"gateway.internal", "X-User: ann", "", 200, ""},
		{"gateway.internal", "X-User: ann", "Authorization: Bearer " + tokenOf("edge"), 200, ""},
		{"gateway.internal", "X-User: ann", "", 429, `limit \"user\"`},
		{"gateway.internal", "X-User: bo", "", 200, ""},
		{"gateway.internal", "Authorization: Bearer " + tokenOf("edge"), "", 401, "the header X-User is missing"},
		{"edge.internal", "X-User: ann", "", 400, "want it from the trusted proxy only"},
		{"other.internal", "X-User: bo", "Authorization: Bearer " + tokenOf("edge"), 400, "want it from the trusted proxy only"},
		{"edge.internal", "", "", 200, ""},
		{"other.internal", "", "Authorization: Bearer " + tokenOf("edge"), 200, ""},
		{"other.internal", "", "", 401, ""},
	} {
		resp, text := sendTo(t, authority.client(call.from), "POST", "https://"+addrOf(app, "models")+"/v1/chat/completions", promptBody, call.header, call.value)
		if resp.StatusCode != call.status || !strings.Contains(text, call.text) {
			t.Errorf("%s %s %s: %d %s, want %d %s", call.from, call.header, call.value, resp.StatusCode, text, call.status, call.text)
		}
		if call.status != http.StatusOK {
			continue
		}
		if sent := <-upstream.got; sent.Get("X-User") != "" || sent.Get("Authorization") != "Bearer "+providerKey {
			t.Errorf("%s: the provider got %v", call.header, sent)
		}
	}
}

// TestIdentityFromSocket wants everybody trusted at the socket that is named, and headers removed
// that go on without a key of the operator.
func TestIdentityFromSocket(t *testing.T) {
	t.Parallel()
	upstream, path := newProvider(t), filepath.Join(t.TempDir(), "s")
	start(t, Options{
		Config: rulesFor(t, peopleRules),
		Models: ModelOptions{Address: "unix:" + path, Upstream: upstream.URL, IdentityHeader: "user=X-User", IdentityFrom: "unix:" + path},
	})
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for user, want := range map[string]int{"ann": http.StatusOK, "": http.StatusUnauthorized} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://weir/v1/chat/completions", strings.NewReader(promptBody))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-User", user)
		r.Header.Set("X-Other", "stays")
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("user %q: %d, want %d", user, resp.StatusCode, want)
		}
		if want != http.StatusOK {
			continue
		}
		if sent := <-upstream.got; sent.Get("X-User") != "" || sent.Get("X-Other") != "stays" || sent.Get("Authorization") != "" {
			t.Errorf("the provider got %v", sent)
		}
	}
}

// TestIdentityRefused wants an unsafe set-up refused at the start, and rules about a label that no
// header has.
func TestIdentityRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		models ModelOptions
		want   string
	}{
		"from anybody":   {ModelOptions{Mock: true, IdentityHeader: "user=X-User"}, "--identity-from beside it"},
		"an address":     {ModelOptions{Mock: true, IdentityHeader: "user=X-User", IdentityFrom: "10.0.0.1"}, "an address proves nothing"},
		"a label's rule": {ModelOptions{Mock: true, Address: "unix:/s", IdentityHeader: "team=X-Team", IdentityFrom: "unix:/s"}, `a rule about "user", which no request has; want key, model, or a label that callers can have`},
		"a reserved one": {ModelOptions{Mock: true, Address: "unix:/s", IdentityHeader: "model=X-User", IdentityFrom: "unix:/s"}, "every request has key, model, end_user already"},
	} {
		_, err := New(Options{Config: rulesFor(t, peopleRules), Models: test.models})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	if _, err := New(Options{Models: ModelOptions{Mock: true, Address: "nowhere"}}); err == nil || !strings.Contains(err.Error(), "unix:/path") {
		t.Errorf("no address: %v", err)
	}
}
