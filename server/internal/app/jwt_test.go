package app

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// TestJWTCallers wants people limited by the labels in the tokens that they send as their API key,
// which go no further, and /readyz to say why tokens cannot be checked.
func TestJWTCallers(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var away atomic.Bool
	away.Store(true)
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
	}))
	t.Cleanup(issuer.Close)
	token := func(user, audience string) string {
		t.Helper()
		j := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"iss": "me", "aud": audience, "sub": user, "dept": "web", "exp": time.Now().Add(time.Hour).Unix()})
		j.Header["kid"] = "a"
		text, err := j.SignedString(private)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	upstream := newProvider(t)
	options := Options{
		Config: rulesFor(t, strings.Replace(peopleRules, "key: user", "key: team", 1)), Callers: callersFile(t, "take", "llm"),
		Admin: AdminOptions{Address: "127.0.0.1:0"},
		Models: ModelOptions{
			Address: "127.0.0.1:0", Upstream: upstream.URL, UpstreamKeyFile: passwordFile(t, providerKey),
			JWT: JWTOptions{Keys: issuer.URL, Issuer: "me", Audience: "weir", Label: "user=sub,team=dept"},
		},
	}
	app := start(t, options)
	header := "Authorization: Bearer " + tokenOf("watch")
	eventually(t, func() error {
		if resp, text := send(t, app, "admin", "GET", "/readyz", "", header); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "the status is 503: want 200") {
			return fmt.Errorf("/readyz: %d %s", resp.StatusCode, text)
		}
		return nil
	})
	if status, text := askModel(t, app, "/v1/chat/completions", "Authorization: Bearer "+token("ann", "weir")); status != http.StatusUnauthorized || !strings.Contains(text, "not known yet") {
		t.Errorf("before there are keys: %d %s", status, text)
	}
	// A file of callers is a source, too, whatever is wrong with the other.
	if status, text := askModel(t, app, "/v1/chat/completions", "Authorization: Bearer "+tokenOf("edge")); status != http.StatusOK {
		t.Errorf("by the file: %d %s", status, text)
	}
	<-upstream.got
	away.Store(false)
	second := options
	second.Admin.Address = "127.0.0.1:0"
	app = start(t, second) // A second instance, as the first reads again after a minute.
	eventually(t, func() error {
		if resp, text := send(t, app, "admin", "GET", "/readyz", "", header); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %d %s", resp.StatusCode, text)
		}
		return nil
	})
	for _, call := range []struct {
		path, header string
		status       int
		text         string
	}{
		{"/v1/chat/completions", "Authorization: Bearer " + token("ann", "weir"), 200, ""},
		{"/v1/messages", "X-Api-Key: " + token("bo", "weir"), 200, ""},
		{"/v1/chat/completions", "Authorization: Bearer " + token("ann", "weir"), 429, `limit \"user\"`},
		{"/v1/chat/completions", "Authorization: Bearer " + token("ann", "shop"), 401, `nobody has this credential: the token is for another audience: want the aud \"weir\"`},
		{"/v1/messages", "X-Api-Key: sk-0123456789abcdef", 401, "authentication_error"},
	} {
		status, text := askModel(t, app, call.path, call.header)
		if status != call.status || !strings.Contains(text, call.text) {
			t.Errorf("%s: %d %s, want %d %s", call.path, status, text, call.status, call.text)
		}
		if call.status != http.StatusOK {
			continue
		}
		if sent := <-upstream.got; strings.Contains(fmt.Sprint(sent), "eyJ") || !strings.Contains(fmt.Sprint(sent), providerKey) {
			t.Errorf("the provider got %v", sent)
		}
	}
	wrong := options
	wrong.Callers, wrong.Models.Address = "", "0.0.0.0:0"
	if _, err := New(wrong); err == nil || !strings.Contains(err.Error(), "--models-tls-cert") {
		t.Errorf("tokens would cross the network in plain text: %v", err)
	}
}
