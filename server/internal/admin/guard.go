package admin

import (
	"net/http"
	"strings"

	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/browsers"
	"github.com/weirlimit/weir/server/internal/callers"
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
		case a.Callers == nil || r.URL.Path == "/healthz":
			next.ServeHTTP(w, r)
		default:
			who, known := a.admits(r)
			if !known {
				strangers.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(w, r.WithContext(callers.NewContext(r.Context(), who)))
		}
	})
}

// stranger answers who is not let in: with what it takes to log in, where there is
// such a thing and the call is for it.
func (a *api) stranger(w http.ResponseWriter, r *http.Request) {
	if a.Login != nil && a.Login.Ask(w, r) {
		return
	}
	callers.FromRequest(r).HangUp(w)
	w.Header().Set("WWW-Authenticate", `Bearer realm="weir admin"`)
	fail(w, r, &problem.Document{
		Status: http.StatusUnauthorized, Field: "authorization",
		Detail: `a token is needed, as "Authorization: Bearer …"`,
	})
}

// admits returns whose a call is, and whether it shows what is a caller's or comes from a
// browser whose user has logged in with that.
func (a *api) admits(r *http.Request) (*callers.Identity, bool) {
	shown := callers.FromRequest(r)
	if !shown.Shown && a.Login != nil {
		if who, known := a.Login.Admits(r); known {
			return who, true
		}
	}
	return a.Callers.Authenticate(shown)
}

// reading serves callers that may read what is about every domain.
func reading(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := callers.FromContext(r.Context()).May(callers.AdminRead, callers.AllDomains); err != nil {
			fail(w, r, err)
			return
		}
		next(w, r)
	}
}

// caller says who made a call, as far as is known.
func (a *api) caller(r *http.Request) string {
	who := callers.FromContext(r.Context())
	switch {
	case who.Name() != "":
		return "caller " + who.Name()
	case r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		return "certificate " + r.TLS.VerifiedChains[0][0].Subject.String()
	case a.Callers != nil && !callers.FromRequest(r).Shown:
		return "login"
	case a.Callers != nil:
		return "token"
	}
	return "anybody on this machine"
}
