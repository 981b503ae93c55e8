package app

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// TestClassOfSources wants the class of a caller lowered by the header and never raised, whether
// it is in the file of callers, in a token, or in a header of the trusted proxy, and the header
// not forwarded.
func TestClassOfSources(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	token := func(class string) string {
		t.Helper()
		j := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"iss": "me", "aud": "weir", "sub": "ann", "tier": class, "exp": time.Now().Add(time.Hour).Unix()})
		j.Header["kid"] = "a"
		text, err := j.SignedString(private)
		if err != nil {
			t.Fatal(err)
		}
		return "Authorization: Bearer " + text
	}
	keys := passwordFile(t, fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public)))
	file := passwordFile(t, strings.Replace(readFile(t, callersFile(t, "take", "llm")), "{name: edge,", "{name: edge, labels: {class: batch},", 1))
	authority, upstream := newIssuer(t), newProvider(t)
	cert, key := authority.pair("weir.test")
	app := start(t, Options{
		Config: rulesFor(t, `domain: llm
classes: [interactive, batch, idle]
descriptors:
  - {key: class, value: interactive, rate_limit: {requests_per_unit: 1000, unit: day, algorithm: fixed_window}}
  - {key: class, value: batch, rate_limit: {requests_per_unit: 2000, unit: day, algorithm: fixed_window}}
  - {key: class, value: idle, rate_limit: {requests_per_unit: 3000, unit: day, algorithm: fixed_window}}
`),
		Callers: file,
		Models: ModelOptions{
			Address: "127.0.0.1:0", Upstream: upstream.URL, UpstreamKeyFile: passwordFile(t, providerKey),
			TLS:            TLS{Cert: cert, Key: key, ClientCA: authority.file},
			IdentityHeader: "user=X-User,class=X-Class", IdentityFrom: "gateway.internal",
			JWT: JWTOptions{Keys: keys, Issuer: "me", Audience: "weir", Label: "user=sub,class=tier"},
		},
	})
	edge := "Authorization: Bearer " + tokenOf("edge")
	for source, own := range map[string]struct {
		from    string
		headers []string
	}{
		"file":   {"other.internal", []string{edge}},
		"token":  {"other.internal", []string{token("batch")}},
		"header": {"gateway.internal", []string{"X-User: ann", "X-Class: batch"}},
	} {
		for class, want := range map[string]string{"": "q=2000;", "batch": "q=2000;", "idle": "q=3000;", "interactive": "want one of batch, idle: the caller has batch", "none": "want one of batch, idle"} {
			headers := own.headers
			if class != "" {
				headers = append([]string{"Weir-Class: " + class}, headers...)
			}
			resp, text := sendTo(t, authority.client(own.from), "POST", "https://"+addrOf(app, "models")+"/v1/chat/completions", promptBody, headers...)
			status := http.StatusOK
			if strings.HasPrefix(want, "want") {
				status = http.StatusBadRequest
			}
			if policy := resp.Header.Get("Ratelimit-Policy"); resp.StatusCode != status || !strings.Contains(policy+text, want) {
				t.Errorf("%s, %q: %d %s %s, want %d %s", source, class, resp.StatusCode, policy, text, status, want)
			}
			if status == http.StatusOK && resp.StatusCode == status {
				if sent := <-upstream.got; len(sent.Values("Weir-Class"))+len(sent.Values("X-Class")) > 0 {
					t.Errorf("%s: the provider got %v", source, sent)
				}
			}
		}
	}
}
