package callers

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
)

// A Connection counts the failures in a row on one connection. After [MaxFailures] nothing
// more succeeds on it, however many calls are in flight. The zero value is ready for use;
// it is safe for concurrent use. A nil *Connection counts nothing.
type Connection struct {
	failures atomic.Int32
	last     atomic.Pointer[recognized]
}

// recognized is what was right last on a connection, and with which files.
type recognized struct {
	by      *Authenticator
	user    string
	token   string
	secrets *[][sha256.Size]byte
	set     **Set
	who     *Identity
}

// recall returns whose credentials these are, if they are those that were right last and no
// file has changed since. It takes as long whichever bytes of the token are others.
func (c *Connection) recall(a *Authenticator, shown *Credentials) *Identity {
	if c == nil {
		return nil
	}
	last := c.last.Load()
	if last == nil || last.by != a || last.user != shown.User || !same(last.token, shown.Token) {
		return nil
	}
	if last.secrets != a.options.Secrets.version() || last.set != a.options.File.version() {
		return nil
	}
	return last.who
}

// same compares two texts in a time that depends on nothing but their lengths.
func same(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	var differs byte
	for i := range len(a) {
		differs |= a[i] ^ b[i]
	}
	return subtle.ConstantTimeByteEq(differs, 0) == 1
}

// Exhausted reports whether the listener should close the connection after too many
// failures in a row.
func (c *Connection) Exhausted() bool { return c != nil && c.failures.Load() >= MaxFailures }

func (c *Connection) fail() {
	if c != nil {
		c.failures.Add(1)
	}
}

// succeed forgets the failures, and reports false if there were too many.
func (c *Connection) succeed() bool {
	if c == nil {
		return true
	}
	for {
		n := c.failures.Load()
		if n == 0 || n < MaxFailures && c.failures.CompareAndSwap(n, 0) {
			return true
		}
		if n >= MaxFailures {
			return false
		}
	}
}

type connectionKey struct{}

// ConnContext is for [http.Server.ConnContext]: it makes [FromRequest] count the failures
// on each connection.
func ConnContext(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, new(Connection))
}

// FromRequest returns the credentials of an HTTP request: a Bearer token in its only
// Authorization header, and the client's certificate.
func FromRequest(r *http.Request) *Credentials {
	c := &Credentials{Remote: (*remote)(r)}
	c.Connection, _ = r.Context().Value(connectionKey{}).(*Connection)
	c.Token, c.Shown = Bearer(r.Header["Authorization"])
	c.Certificate = Genuine(r.TLS)
	return c
}

// Genuine returns the verified client certificate of a connection; nil if there is none.
func Genuine(state *tls.ConnectionState) *x509.Certificate {
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	return state.VerifiedChains[0][0]
}

// HangUp makes the server close the connection after its answer, if it had too many
// failures in a row. Call it before the answer is written.
func (c *Credentials) HangUp(w http.ResponseWriter) {
	if c.Connection.Exhausted() {
		w.Header().Set("Connection", "close")
	}
}

// Bearer returns the token of a call's only Authorization.
func Bearer(values []string) (token string, shown bool) {
	if len(values) != 1 {
		return "", false
	}
	scheme, token, found := strings.Cut(values[0], " ")
	return strings.TrimSpace(token), found && strings.EqualFold(scheme, "Bearer")
}

// A remote is a request, as the address of its client.
type remote http.Request

// String returns the address.
func (r *remote) String() string { return r.RemoteAddr }
