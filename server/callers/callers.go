// Package callers finds out who calls a listener, and counts who fails to prove it.
// Every listener asks it, whatever its protocol.
package callers

import (
	"log/slog"
	"sync/atomic"
	"time"
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
	// Secrets are the tokens or passwords one of which a caller has to show.
	Secrets *Secrets
	// Failed, if not nil, is called for each failure.
	Failed func()
	// Logger gets at most one line a second about failures. Nil: nothing is logged.
	Logger *slog.Logger
}

// An Authenticator finds out who calls one listener. It is safe for concurrent use and
// starts nothing. A nil *Authenticator admits everybody.
type Authenticator struct {
	options    Options
	unlogged   atomic.Int64 // failures since the last line
	lastLogged atomic.Int64 // unix seconds
}

// New returns an authenticator, or nil if the options name nothing to ask for.
func New(o Options) *Authenticator {
	if o.Secrets == nil {
		return nil
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Failed == nil {
		o.Failed = func() {}
	}
	return &Authenticator{options: o}
}

// Credentials are what a caller shows.
type Credentials struct {
	// User is the user of protocols that have one; [DefaultUser] or nothing.
	User string
	// Token is a token or password. Shown says that there is one, however empty.
	Token string
	Shown bool
	// Remote is the address that the call comes from, for the log.
	Remote string
	// Connection counts the failures on the call's connection. Nil: nobody counts.
	Connection *Connection
}

// An Identity is a caller at one listener. A nil *Identity is everybody, at a listener
// that asks for nothing.
type Identity struct{}

// Authenticate returns whose credentials these are, and whether they are a caller's. A
// secret that is shown and wrong is a failure: it is counted, and the log tells how many
// there were. The time it takes says nothing about how much of a secret is right.
func (a *Authenticator) Authenticate(c *Credentials) (*Identity, bool) {
	if a == nil {
		return nil, true
	}
	if !c.Shown {
		return nil, false
	}
	who, known := a.Find(c.Token)
	if known && (c.User == "" || c.User == DefaultUser) {
		c.Connection.succeed()
		return who, true
	}
	c.Connection.fail()
	a.fail(c.Remote)
	return nil, false
}

// Find returns whose a token is, as Authenticate does, but counts no failure: it is for
// tokens that were right once.
func (a *Authenticator) Find(token string) (*Identity, bool) {
	if a.options.Secrets.Has(token) {
		return &Identity{}, true
	}
	return nil, false
}

// fail counts a failure and logs it, unless one was logged this second.
func (a *Authenticator) fail(remote string) {
	a.options.Failed()
	a.unlogged.Add(1)
	now := time.Now().Unix()
	if last := a.lastLogged.Load(); last != now && a.lastLogged.CompareAndSwap(last, now) {
		a.options.Logger.Warn("callers show secrets that are wrong", "listener", a.options.Listener,
			"failures", a.unlogged.Swap(0), "last_remote", remote)
	}
}
