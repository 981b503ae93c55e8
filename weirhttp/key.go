package weirhttp

import (
	"net/http"

	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/gate"
)

// KeyFunc returns the key whose budget a request is charged to. Long keys are stored as
// digests. An error means that the request has no key.
type KeyFunc func(*http.Request) (string, error)

// KeyByIP keys by the client's address, as the strategy finds it: IPv4 by itself,
// IPv6 by its network.
func KeyByIP(strategy clientip.Strategy) KeyFunc { return strategy.Key }

// KeyByHeader keys by a digest of a header's first value, such as an API token; the value
// itself is not stored. All requests without the header share a budget. Check the token
// before the limit: a client that can invent tokens has no limit.
func KeyByHeader(name string) KeyFunc {
	return func(r *http.Request) (string, error) { return HeaderKey(r.Header.Get(name)), nil }
}

// HeaderKey returns the key that [KeyByHeader] gives to requests whose header has this value.
// Use it to peek, refund or override such a key, or to charge it elsewhere.
func HeaderKey(value string) string { return gate.Digest(value) }

// KeyByPath keys by the path of the URL. If clients can invent paths that the handler
// answers, each path has a fresh budget: use [KeyByPattern] instead.
func KeyByPath(r *http.Request) (string, error) { return r.URL.Path, nil }

// KeyByPattern keys by the pattern of http.ServeMux that the request matched. It is for
// middleware around the handlers of a mux. Around the mux itself, no pattern has matched
// yet.
func KeyByPattern(r *http.Request) (string, error) { return r.Pattern, nil }

// KeyByMethod keys by the method. Methods that HTTP does not define share a
// budget.
func KeyByMethod(r *http.Request) (string, error) {
	switch r.Method {
	case "", http.MethodGet:
		return http.MethodGet, nil
	case http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return r.Method, nil
	}
	return "other", nil
}

// JoinKeys combines keys: requests share a budget if all their keys agree. It fails if
// one of them fails.
func JoinKeys(keys ...KeyFunc) KeyFunc {
	return func(r *http.Request) (string, error) {
		return gate.Join(len(keys), func(i int) (string, error) { return keys[i](r) })
	}
}
