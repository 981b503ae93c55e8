package admin

import (
	"net/http"
	"strings"

	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/browsers"
)

// guard lets in who may call. Whether the process lives is for everybody to know.
func (a *api) guard(next http.Handler) http.Handler {
	next, strangers := browsers.Protect(next), browsers.Protect(http.HandlerFunc(a.stranger))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		switch {
		case a.Loopback && !browsers.Local(r.Host, a.Hosts):
			fail(w, r, browsers.Misdirected(r.Host))
		case browsers.Embedded(r) || browsers.Foreign(r) && strings.HasPrefix(r.URL.Path, profiles):
			fail(w, r, browsers.CrossSite())
		case a.Token != nil && r.URL.Path != "/healthz" && !a.admits(r):
			strangers.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// stranger answers who is not let in: with what it takes to log in, where there is
// such a thing and the call is for it.
func (a *api) stranger(w http.ResponseWriter, r *http.Request) {
	if a.Login != nil && a.Login.Ask(w, r) {
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="weir admin"`)
	fail(w, r, &problem.Document{
		Status: http.StatusUnauthorized, Field: "authorization",
		Detail: `a token is needed, as "Authorization: Bearer …"`,
	})
}

// admits reports whether a call says the token, or comes from a browser whose user
// has said it.
func (a *api) admits(r *http.Request) bool {
	return a.knows(r.Header.Get("Authorization")) || a.Login != nil && a.Login.Admits(r)
}

// knows reports whether the header has a token that is right.
func (a *api) knows(header string) bool {
	scheme, token, _ := strings.Cut(header, " ")
	return strings.EqualFold(scheme, "Bearer") && a.Token(token)
}

// caller says who made a call, as far as is known.
func (a *api) caller(r *http.Request) string {
	switch {
	case r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		return "certificate " + r.TLS.VerifiedChains[0][0].Subject.String()
	case a.Token != nil && !a.knows(r.Header.Get("Authorization")):
		return "login"
	case a.Token != nil:
		return "token"
	}
	return "anybody on this machine"
}
