package app

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
)

// hangUpAfter is how long a gRPC connection lives after too many failures in a row, so
// that the answer arrives.
const hangUpAfter = 100 * time.Millisecond

// errToken answers callers that show no token, or one that is wrong.
const errToken = "a token is needed: want Authorization: Bearer TOKEN"

// authenticator returns what authenticates the callers of a listener; nil where the
// options ask for nothing.
func (a *App) authenticator(listener string) (*callers.Authenticator, error) {
	of := a.options.accessOf(listener)
	file := callers.SecretsFile{Setting: of.setting, File: of.secrets, Least: of.leastSecret(), Logger: a.logger}
	secrets, err := file.Open()
	if err != nil {
		return nil, err
	}
	return callers.New(callers.Options{
		Listener: listener, Secrets: secrets, File: a.callers, Logger: a.logger,
		Failed: a.metrics.AuthFailures(listener), Requests: a.metrics.CallerRequests(listener),
	}), nil
}

// requireToken serves callers that show a token, as Bearer or as the password of Basic,
// which proxies can write into a URL.
func requireToken(next http.Handler, by *callers.Authenticator) http.Handler {
	if by == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := shownBy(r)
		if who, known := by.Authenticate(shown); known {
			next.ServeHTTP(w, r.WithContext(callers.NewContext(r.Context(), who)))
			return
		}
		shown.HangUp(w)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
		(&problem.Document{Status: http.StatusUnauthorized, Detail: errToken, Field: "authorization"}).Write(w, r)
	})
}

// shownBy returns what a request shows: a token as Bearer or as the password of Basic, or
// a certificate.
func shownBy(r *http.Request) *callers.Credentials {
	shown := callers.FromRequest(r)
	if _, password, basic := r.BasicAuth(); basic && len(r.Header["Authorization"]) == 1 {
		shown.Token, shown.Shown = password, true
	}
	return shown
}

// knownTo returns what tells whether a request shows that its caller is known; nobody
// is where nothing is asked for.
func knownTo(by *callers.Authenticator) func(*http.Request) bool {
	if by == nil {
		return nil
	}
	return func(r *http.Request) bool {
		shown := shownBy(r)
		if !shown.Shown && shown.Certificate == nil {
			return false
		}
		_, known := by.Authenticate(shown)
		return known
	}
}

// requireRead serves callers that may read what is for administrators, of all domains.
func requireRead(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := callers.FromContext(r.Context()).May(callers.AdminRead, callers.AllDomains); err != nil {
			w.Header().Set("Cache-Control", "no-store")
			problem.Of(err).Write(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guardedService begins the names of the gRPC methods that ask for a token: health
// checks need none.
const guardedService = "/envoy.service.ratelimit."

// authenticateRPC authenticates the caller of a gRPC method by the call's context, and
// returns one with the caller's identity. The error is a status.
func authenticateRPC(ctx context.Context, method string, by *callers.Authenticator) (context.Context, error) {
	if by == nil || !strings.HasPrefix(method, guardedService) {
		return ctx, nil
	}
	shown := new(callers.Credentials)
	shown.Token, shown.Shown = callers.Bearer(metadata.ValueFromIncomingContext(ctx, "authorization"))
	var conn *attempted
	if p, ok := peer.FromContext(ctx); ok {
		shown.Remote = p.Addr.String()
		if from, ok := admission.ClientAddr(p.Addr).(*attemptedAddr); ok {
			conn, shown.Connection = from.conn, &from.conn.attempts
		}
		if secured, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			shown.Certificate = callers.Genuine(&secured.State)
		}
	}
	if who, known := by.Authenticate(shown); known {
		return callers.NewContext(ctx, who), nil
	}
	if shown.Connection.Exhausted() {
		conn.hangUp()
	}
	return ctx, status.Error(codes.Unauthenticated, errToken)
}

// unaryToken is authenticateRPC as an interceptor.
func unaryToken(by *callers.Authenticator) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, err := authenticateRPC(ctx, info.FullMethod, by)
		if err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// countAttempts makes the listener's connections known to authenticateRPC.
func countAttempts(l net.Listener) net.Listener { return &attemptedListener{l} }

type attemptedListener struct{ net.Listener }

// Accept returns the next connection.
func (l *attemptedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &attempted{Conn: conn}, nil
}

// attempted is a gRPC connection that counts failures in a row. gRPC tells calls no more
// of their connection than its remote address, so that leads back to it.
type attempted struct {
	net.Conn
	attempts callers.Connection
}

type attemptedAddr struct {
	net.Addr
	conn *attempted
}

// RemoteAddr returns the remote address.
func (c *attempted) RemoteAddr() net.Addr { return &attemptedAddr{c.Conn.RemoteAddr(), c} }

// hangUp closes the connection soon. No goroutine waits for that.
func (c *attempted) hangUp() { time.AfterFunc(hangUpAfter, func() { _ = c.Close() }) }
