package meter

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
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
	if !visible(shown[0]) {
		return "", unauthorized(http.StatusBadRequest, "the credential has a space, or another character that is not visible")
	}
	return shown[0], nil
}

// visible reports whether a text has visible characters of ASCII only. A provider may read
// others, such as spaces, as the end of a credential.
func visible(text string) bool {
	return strings.IndexFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
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

// otherHeaders and otherParameters are not forwarded. The provider might prefer credentials in
// them to the one that is charged, or read another path or method.
var (
	otherHeaders = []string{
		"Api-Key", "X-Goog-Api-Key", "Cookie",
		"X-Original-Url", "X-Rewrite-Url", "X-Http-Method", "X-Http-Method-Override", "X-Method-Override",
	}
	otherParameters = []string{"key", "api_key", "api-key", "access_token"}
)

// ownHeaders are the headers that go on beside the operator's key. Others could choose an
// organisation, a project, or a way to be billed.
var ownHeaders = []string{
	"Accept", "Accept-Language", "Anthropic-Beta", "Anthropic-Version", "Authorization", "Content-Type", "Idempotency-Key",
	"Openai-Beta", "Traceparent", "Tracestate", "User-Agent", "X-Api-Key", "X-Client-Request-Id", "X-Request-Id",
}

// sdkHeaders begin the headers by which SDKs describe themselves.
const sdkHeaders = "X-Stainless-"

// besideOwnKey returns the headers that go on beside the operator's key.
func besideOwnKey(h http.Header) http.Header {
	kept := http.Header{}
	for name, values := range h {
		if slices.Contains(ownHeaders, name) || strings.HasPrefix(name, sdkHeaders) {
			kept[name] = values
		}
	}
	return kept
}

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
