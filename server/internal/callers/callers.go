// Package callers authenticates the callers of a listener, says what each may do, and
// counts failures. Every listener uses it, whatever its protocol.
package callers

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"strings"

	"github.com/weirlimit/weir/internal/logs"
)

const (
	// MinSecret is how many bytes a secret has at least where it can be guessed from
	// other machines, and every token.
	MinSecret = 16
	// MaxFailures is how many times in a row a connection may show credentials that
	// nobody has. The listener then closes it.
	MaxFailures = 5
	// DefaultUser is the user of every secret, as Redis calls it.
	DefaultUser = "default"
)

// Options are what [New] needs.
type Options struct {
	// Listener is the name of the listener: "http", "grpc", "resp" or "admin".
	Listener string
	// Secrets are tokens or passwords of callers that may do everything. Nil: there are
	// none.
	Secrets *Secrets
	// File has callers that may do what it says. Nil: there are none.
	File *File
	// Headers are those of a trusted proxy. Nil: there is none.
	Headers *Headers
	// JWT knows callers by the tokens of an issuer. Nil: there is none.
	JWT *JWT
	// Failed, if not nil, is called for each failure.
	Failed func()
	// Requests, if not nil, is called for each request, with the caller's name in the
	// file, for a caller with labels its team instead, or [Other], and what became of it.
	Requests func(caller string, o Outcome)
	// Logger gets at most one line a second about failures. Nil: nothing is logged.
	Logger *slog.Logger
}

// An Authenticator authenticates the callers of one listener. It is safe for concurrent use and
// starts nothing. A nil *Authenticator admits everybody.
type Authenticator struct {
	options Options
	logged  logs.Seldom
}

// An Outcome is the result of authenticating and authorizing a request.
type Outcome uint8

// The outcomes.
const (
	// Admitted requests are carried out.
	Admitted Outcome = iota
	// Forbidden requests ask for something that their caller may not do.
	Forbidden
	// Unauthenticated requests show no credentials, or nobody's.
	Unauthenticated
)

// String returns the outcome as metrics have it.
func (o Outcome) String() string { return [...]string{"admitted", "forbidden", "unauthenticated"}[o] }

// New returns an authenticator, or nil if the options name nothing to ask for.
func New(o Options) *Authenticator {
	if o.Secrets == nil && o.File == nil && o.Headers == nil && o.JWT == nil {
		return nil
	}
	if o.Requests == nil {
		o.Requests = func(string, Outcome) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Failed == nil {
		o.Failed = func() {}
	}
	return &Authenticator{options: o}
}

// Credentials are the credentials that a caller shows.
type Credentials struct {
	// User is the user of protocols that have one; [DefaultUser] or nothing.
	User string
	// Token is a token or password. Shown says that there is one, however empty.
	Token string
	Shown bool
	// Certificate is the client's verified certificate. Nil: there is none. A token takes
	// precedence.
	Certificate *x509.Certificate
	// Remote is the address that the call comes from, for the log of failures. Nil: unknown.
	Remote fmt.Stringer
	// Connection counts the failures on the call's connection. Nil: they are not counted.
	Connection *Connection
	// Why is what Authenticate found wrong with a token; empty if nobody has it.
	Why string
}

// Authenticate returns the caller with these credentials, and whether there is one. A
// wrong secret is a failure: it is counted and logged, and so is each secret after too
// many failures in a row on its connection. The time that Authenticate takes does not
// reveal how much of a secret is right.
func (a *Authenticator) Authenticate(c *Credentials) (*Identity, bool) {
	if a == nil {
		return nil, true
	}
	if !c.Shown {
		if who, known := a.Certificate(c.Certificate); known {
			return who, true
		}
		a.options.Requests(Other, Unauthenticated)
		return nil, false
	}
	if who := c.Connection.recall(a, c); who != nil && c.Connection.succeed() {
		return who, true
	}
	secrets, set := a.options.Secrets.version(), a.options.File.version() // before they are asked
	who, known := a.Find(c.Token)
	if !known && a.options.JWT != nil {
		labels, err := a.options.JWT.labelsOf(c.Token)
		if known = err == nil; known {
			who = a.known(labels)
		} else {
			c.Why = err.Error()
		}
	}
	if known && (c.User == "" || c.User == DefaultUser || c.User == who.Name()) && c.Connection.succeed() {
		if c.Connection != nil {
			c.Connection.last.Store(&recognized{a, c.User, strings.Clone(c.Token), secrets, set, who})
		}
		return who, true
	}
	c.Connection.fail()
	a.options.Requests(Other, Unauthenticated)
	a.fail(c.Remote)
	return nil, false
}

// Find returns the caller with a token, as Authenticate does, but counts nothing: it is
// for tokens that were right once.
func (a *Authenticator) Find(token string) (*Identity, bool) {
	if a.options.Secrets != nil && a.options.Secrets.Has(token) {
		return &Identity{by: a}, true
	}
	if a.options.File == nil {
		return nil, false
	}
	return a.identity(a.options.File.set().token(token))
}

// Recall returns the caller with these credentials, as Authenticate does, but counts nothing: it is
// for calls that go on after they were admitted.
func (a *Authenticator) Recall(c *Credentials) (*Identity, bool) {
	if c.Shown {
		return a.Find(c.Token)
	}
	return a.Certificate(c.Certificate)
}

// Certificate returns the caller with a verified client certificate, which may be nil,
// and whether there is one. It counts nothing.
func (a *Authenticator) Certificate(c *x509.Certificate) (*Identity, bool) {
	if c == nil || a.options.File == nil {
		return nil, false
	}
	return a.identity(a.options.File.set().certificate(c))
}

func (a *Authenticator) identity(caller *Caller) (*Identity, bool) {
	if caller == nil {
		return nil, false
	}
	return &Identity{caller, a}, true
}

// fail counts a failure and logs it, unless one was logged this second.
func (a *Authenticator) fail(remote fmt.Stringer) {
	a.options.Failed()
	if leftOut, due := a.logged.Due(); due {
		a.options.Logger.Warn("callers show secrets that are wrong", "listener", a.options.Listener,
			"failures", leftOut+1, "last_remote", fmt.Sprint(remote))
	}
}
