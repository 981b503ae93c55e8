package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/server/internal/callers"
)

const (
	loginPath  = "/dashboard/login"
	logoutPath = "/dashboard/logout"
	cookieName = "weir_session"
	// sessionLife is the duration of a session.
	sessionLife = 12 * time.Hour
	// maxSessions bounds the number of sessions: one more ends the oldest.
	maxSessions = 64
	// maxForm is the size of the largest form, in bytes.
	maxForm = 8 << 10
)

// sessions are the open sessions, by digests of their cookies.
type sessions struct {
	mu   sync.Mutex
	open map[[sha256.Size]byte]login
}

// A login is the end of a session, and the token that opened it.
type login struct {
	end   time.Time
	token string
}

// begin opens a session and returns its cookie.
func (s *sessions) begin(token string, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[[sha256.Size]byte]login{}
	}
	if len(s.open) >= maxSessions {
		delete(s.open, oldest(s.open, func(l login) time.Time { return l.end }))
	}
	// Text has 128 bits of randomness at least.
	secret := rand.Text()
	s.open[sha256.Sum256([]byte(secret))] = login{now.Add(sessionLife), token}
	return secret
}

// oldest returns the key of the element with the earliest time.
func oldest[K comparable, V any](all map[K]V, at func(V) time.Time) (first K) {
	var earliest time.Time
	for key, value := range all {
		if t := at(value); earliest.IsZero() || t.Before(earliest) {
			first, earliest = key, t
		}
	}
	return first
}

// known returns the token of an open session.
func (s *sessions) known(secret string, now time.Time) (token string, found bool) {
	digest := sha256.Sum256([]byte(secret))
	s.mu.Lock()
	defer s.mu.Unlock()
	l, found := s.open[digest]
	if found && !now.Before(l.end) {
		delete(s.open, digest)
		return "", false
	}
	return l.token, found
}

func (s *sessions) close(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sha256.Sum256([]byte(secret)))
}

// Admits returns the identity of the sender, and whether the request belongs to a session
// whose token is still valid.
func (d *Dashboard) Admits(r *http.Request) (*callers.Identity, bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil, false
	}
	token, found := d.sessions.known(cookie.Value, time.Now())
	if !found || d.Callers == nil {
		return nil, found
	}
	return d.Callers.Find(token)
}

// Ask answers a request without a session: with the login form if a browser asks for the
// page, with its files, and the form itself. It returns false, and does nothing, for
// other requests.
func (d *Dashboard) Ask(w http.ResponseWriter, r *http.Request) bool {
	get := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case r.Method == http.MethodPost && r.URL.Path == loginPath:
		d.login(w, r)
	case get && strings.HasPrefix(r.URL.Path, assetPath):
		d.asset(w, r)
	case get && r.URL.Path == "/":
		d.askToken(w, r, "")
	default:
		return false
	}
	return true
}

// login opens a session for a caller with a valid token.
func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	shown := callers.FromRequest(r)
	shown.Token, shown.Shown = r.PostFormValue("token"), true
	if _, known := d.Callers.Authenticate(shown); !known {
		shown.HangUp(w)
		if leftOut, due := d.refused.Due(); due {
			d.Logger.WarnContext(r.Context(), "a login was refused", "audit", "login", "remote", r.RemoteAddr, "result", "failed", "left_out", leftOut)
		}
		d.askToken(w, r, "This token is not valid.")
		return
	}
	if d.Callers != nil {
		http.SetCookie(w, d.cookie(d.sessions.begin(shown.Token, time.Now()), sessionLife))
		d.Logger.InfoContext(r.Context(), "an administrator logged in", "audit", "login", "remote", r.RemoteAddr, "result", "done")
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// logout ends the browser's session.
func (d *Dashboard) logout(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		d.sessions.close(cookie.Value)
	}
	http.SetCookie(w, d.cookie("", -time.Second))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (d *Dashboard) cookie(value string, life time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: int(life / time.Second),
		HttpOnly: true, Secure: d.Secure, SameSite: http.SameSiteStrictMode,
	}
}
