package weirhttp

import (
	"net/http"

	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/gate"
)

// KeyFunc says whose budget a request is charged to. Long keys are stored as
// digests. The error says that it cannot be known.
type KeyFunc func(*http.Request) (string, error)

var defaultKey = KeyByIP(clientip.RemoteAddr())

// KeyByIP keys by the client's address, as the strategy finds it: IPv4 by itself,
// IPv6 by its network.
func KeyByIP(strategy clientip.Strategy) KeyFunc { return strategy.Key }

// KeyByHeader keys by a digest of a header's first value, such as an API token,
// which is not stored itself. All requests without the header share a budget.
// Check the token before the limit: whoever can invent tokens has no limit.
func KeyByHeader(name string) KeyFunc {
	return func(r *http.Request) (string, error) { return gate.Digest(r.Header.Get(name)), nil }
}

// KeyByPath keys by the path of the URL. Where a client can invent paths that the
// handler answers, it can have a fresh budget for each: see [KeyByPattern].
func KeyByPath(r *http.Request) (string, error) { return r.URL.Path, nil }

// KeyByPattern keys by the pattern of http.ServeMux that the request matched: for
// middleware around the handlers of a mux, not around the mux, which has not
// matched yet.
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

// JoinKeys keys by all of these together: requests share a budget where all of
// them agree. It fails where one of them does.
func JoinKeys(keys ...KeyFunc) KeyFunc {
	return func(r *http.Request) (string, error) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			part, err := key(r)
			if err != nil {
				return "", err
			}
			parts[i] = part
		}
		return gate.Join(parts...), nil
	}
}
