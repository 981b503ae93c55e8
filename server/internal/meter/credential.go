package meter

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
)

// bearers are the values of the Authorization headers that are bearer tokens, without the
// spaces around them. False stands for a header of another kind.
func bearers(values []string) (tokens []string, ok bool) {
	for _, v := range values {
		scheme, token, _ := strings.Cut(strings.TrimSpace(v), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, false
		}
		tokens = append(tokens, strings.TrimSpace(token))
	}
	return tokens, true
}

// credentialOf returns the only credential of a request. Two ways to write it, or two
// different ones, would be a fresh budget for each request. The error is a [*refusal].
func credentialOf(f Form, h http.Header) (string, error) {
	shown, ok := bearers(h["Authorization"])
	if !ok {
		return "", unauthorized(http.StatusUnauthorized, "want Authorization: Bearer KEY")
	}
	if len(shown) > 1 {
		return "", unauthorized(http.StatusBadRequest, "the header Authorization is repeated")
	}
	if f == Anthropic {
		keys := h["X-Api-Key"]
		if len(keys) > 1 {
			return "", unauthorized(http.StatusBadRequest, "the header x-api-key is repeated")
		}
		for _, key := range keys {
			shown = append(shown, strings.TrimSpace(key))
		}
		if len(shown) == 2 && shown[0] != shown[1] {
			return "", unauthorized(http.StatusBadRequest, "Authorization and x-api-key have different credentials")
		}
	}
	if len(shown) == 0 || shown[0] == "" {
		want := "want Authorization: Bearer KEY"
		if f == Anthropic {
			want = "want x-api-key, or Authorization: Bearer KEY"
		}
		return "", unauthorized(http.StatusUnauthorized, want)
	}
	return shown[0], nil
}

// keyOf names a credential in limits, logs and metrics without revealing it.
func keyOf(credential string) string {
	sum := sha256.Sum256([]byte(credential))
	return "sha256:" + hex.EncodeToString(sum[:8])
}

// setCredential replaces the credential of a request to the provider: in the header that it
// came in, or in the form's own for another one. An empty one removes it.
func setCredential(f Form, h http.Header, credential string, own bool) {
	_, bearer := h["Authorization"]
	_, key := h["X-Api-Key"]
	h.Del("Authorization")
	h.Del("X-Api-Key")
	switch {
	case credential == "":
	case f == Anthropic && (own || key):
		h.Set("X-Api-Key", credential)
		if bearer && !own {
			h.Set("Authorization", "Bearer "+credential)
		}
	default:
		h.Set("Authorization", "Bearer "+credential)
	}
}

// otherCredentials are headers and parameters with credentials that are not forwarded: the
// provider might prefer them to the one that is charged.
var (
	otherHeaders    = []string{"Api-Key", "X-Goog-Api-Key", "Cookie"}
	otherParameters = []string{"key", "api_key", "api-key", "access_token"}
)

// cleanQuery returns a query without the parameters that are credentials. The rest stays
// byte for byte.
func cleanQuery(raw string) string {
	if raw == "" {
		return ""
	}
	var kept []string
	for part := range strings.SplitSeq(raw, "&") {
		if !isCredential(part) {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&")
}

func isCredential(parameter string) bool {
	name, _, _ := strings.Cut(parameter, "=")
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	for _, other := range otherParameters {
		if strings.EqualFold(name, other) {
			return true
		}
	}
	// Some servers end a parameter at a semicolon.
	_, rest, found := strings.Cut(parameter, ";")
	return found && isCredential(rest)
}
